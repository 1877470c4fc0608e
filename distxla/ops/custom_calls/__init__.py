"""The routines that the `custom_call_target` of a custom-call names: one class a routine, or a family of them."""
