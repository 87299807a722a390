"""Training a DFlash drafter for any target that this engine loads: prompts, answers, loss, loop, evaluation."""
