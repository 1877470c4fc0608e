"""One class an opcode. All of them: test_cases.py, test_compiled.py, test_against_xla.py, test_matrix.py.

bitcast.py: tests/ir/test_tiles.py
compare.py: test_matrix.py, test_total_order.py
dynamic_dimension.py: test_dynamic_dimensions.py
reshape.py: test_dynamic_dimensions.py, test_cases.py
pad.py: test_empty_and_scalar.py, test_cases.py
ragged_all_to_all.py: tests/collectives/test_ragged_all_to_all.py
reduce_window.py, select_and_scatter.py: test_windows.py
triangular_solve.py: test_linalg.py
custom_calls/composed_build.py: test_gpu_block_scaled.py, tests/compiler/passes/test_expand.py
custom_calls/expanded.py: test_expanded_linalg.py
custom_calls/ffi/api.py, custom_calls/ffi/handler.py, custom_calls/ffi/layout.py: tests/runtime/test_ffi.py
custom_calls/gpu/attention.py, custom_calls/gpu/attention_backward.py: test_gpu_attention.py
custom_calls/gpu/block_scaled.py: test_gpu_block_scaled.py
custom_calls/gpu/convolution.py: test_gpu_convolution.py
custom_calls/gpu/fields.py, custom_calls/gpu/matmul.py: test_gpu_matmul.py
custom_calls/gpu/solvers.py: test_gpu_solvers.py
custom_calls/lapack_gehrd.py, custom_calls/lapack_geqrf.py, custom_calls/lapack_gesdd.py: test_lapack_calls.py
custom_calls/neuron.py: test_neuron_calls.py
custom_calls/perturbed_tridiagonal_solve.py: test_lapack_calls.py
custom_calls/steps.py: test_gpu_matmul.py, test_gpu_attention.py, test_neuron_calls.py
sorting/grid_scatter.py: tests/compiler/lower/grid/test_scatters.py
sorting/grid_sort.py: tests/compiler/lower/grid/test_sorts.py
sorting/key_sort.py: test_sort.py, test_sort_by_any_comparator.py
"""
