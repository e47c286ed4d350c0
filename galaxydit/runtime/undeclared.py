"""Why calls of a loop are computed in full because nothing tells their place, with what would declare the loop."""

OTHER_THREAD = "another thread used its scheduler (give each thread a scheduler of its own)"
TWO_LOOPS = "another scheduler stepped between its calls (run loops one after the other, or in threads of their own)"
NOT_ADVANCED = (
    "scheduler.step was called, but the next call is not of the step after it (step once for each step, call every "
    "named window in each step, and run two loops one after the other, or in threads of their own)"
)
NOT_STEPPED = (
    "the step advanced, but no observed scheduler stepped (pass the scheduler that steps the latent; a loop that steps "
    "by hand is declared by accelerate(transformer) without a scheduler, and step_index, num_inference_steps and sigma "
    "in cache_context)"
)
CALLED_TWICE = (
    "{branch} was called twice in one step (name windows and tiles, such as cache_context('window 2/cond'), and run "
    "loops one after the other)"
)
OTHER_STEPS = "its schedulers are at different steps, as with frames at different noise levels"
LAST_STEP = "its last step was taken before (call set_timesteps for the next loop)"
NO_TENSOR = "its scheduler returned no tensor"
BETWEEN_STEPS = "another loop called the transformer between two steps of the pipeline, as in a callback"
FAILED = "{what} raised an error"


class UndeclaredError(Exception):
    """A call has to be computed in full, because nothing tells its place; the text says what was missing. Never raised
    outside the plugin."""
