"""All that is private of JAX and jaxlib, looked up release by release."""
