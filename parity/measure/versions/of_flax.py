"""What depends on the version of Flax."""

LOOP_ON_TRIAL = "flax scan"
"""What the trace is made for in which Linen's `scan` tries the body of a loop; nothing of it ever runs.

Since flax 0.12.12 a loop is refused if that trace has an effect, such as `jax.debug.print`: "broadcasted
variable has a data dependency on the scan body". Seen in 0.12.8 to 0.12.12.
"""
