"""Language models that generate answers: prompts, replies, local and server backends, fine-tuning."""
