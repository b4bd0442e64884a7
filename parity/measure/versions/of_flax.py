"""Facts that depend on the version of Flax."""

LOOP_ON_TRIAL = "flax scan"
"""Purpose of the trace in which Linen's `scan` tries the body of a loop; nothing in it ever runs.

flax 0.12.12 refuses a loop whose trial trace has an effect, such as `jax.debug.print`: "broadcasted
variable has a data dependency on the scan body". The name was seen in 0.12.8 and 0.12.12.
"""
