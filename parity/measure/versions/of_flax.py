"""Facts that depend on the version of Flax."""

LOOP_ON_TRIAL = "flax scan"
"""Purpose of the trace in which Linen's `scan` tries the body of a loop; nothing in it ever runs.

Since flax 0.12.12 a loop whose trial trace has an effect, such as `jax.debug.print`, is refused:
"broadcasted variable has a data dependency on the scan body". Seen in 0.12.8 to 0.12.12.
"""
