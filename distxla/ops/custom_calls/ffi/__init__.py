"""XLA's FFI: handlers that custom-calls of API_VERSION_TYPED_FFI call, by the layout of xla/ffi/api/c_api.h."""
