// Where version 9 of the ABI has its fields. Structures that begin with `struct_size` may have more behind them.
#include "attnrt/abi.h"
#include <stddef.h>

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == offset, #type "." #field " has moved")
#define EXACTLY(type, size) _Static_assert(sizeof(type) == size, #type " lies in arrays and never grows")
#define AT_LEAST(type, size) _Static_assert(sizeof(type) >= size, #type " only grows")

AT(attnrt_footer, abi_version, 0);
AT(attnrt_footer, needed_abi, 4);
AT(attnrt_footer, flags, 8);
AT(attnrt_footer, reserved, 12);
AT(attnrt_footer, elf_size, 16);
AT(attnrt_footer, weights_offset, 24);
AT(attnrt_footer, weights_size, 32);
AT(attnrt_footer, file_size, 40);
_Static_assert(sizeof(attnrt_footer) - offsetof(attnrt_footer, digest) == 48,
               "digest has moved from the end of the file");
_Static_assert(sizeof(attnrt_footer) - offsetof(attnrt_footer, footer_size) == 16,
               "footer_size has moved from the end of the file");
_Static_assert(sizeof(attnrt_footer) - offsetof(attnrt_footer, magic) == 8, "magic has moved from the end of the file");
AT_LEAST(attnrt_footer, 96);

AT(attnrt_dim, size, 0);
AT(attnrt_dim, name, 8);
EXACTLY(attnrt_dim, 16);

AT(attnrt_tensor_info, name, 0);
AT(attnrt_tensor_info, dtype_name, 8);
AT(attnrt_tensor_info, dtype, 16);
AT(attnrt_tensor_info, rank, 20);
AT(attnrt_tensor_info, dims, 24);
EXACTLY(attnrt_tensor_info, 32);

AT(attnrt_buffer, data, 0);
AT(attnrt_buffer, shape, 8);
EXACTLY(attnrt_buffer, 16);

AT(attnrt_device_error, claims, 0);
AT(attnrt_device_error, message, 8);
AT(attnrt_device_error, index, 16);
AT(attnrt_device_error, size, 24);
EXACTLY(attnrt_device_error, 32);

AT(attnrt_state_info, input, 0);
AT(attnrt_state_info, output, 4);
AT(attnrt_state_info, dim, 8);
EXACTLY(attnrt_state_info, 12);

AT(attnrt_weight_info, name, 0);
AT(attnrt_weight_info, dtype, 8);
AT(attnrt_weight_info, rank, 12);
AT(attnrt_weight_info, shape, 16);
AT(attnrt_weight_info, offset, 24);
AT(attnrt_weight_info, size, 32);
AT(attnrt_weight_info, layout, 40);
EXACTLY(attnrt_weight_info, 48);

AT(attnrt_gpu_image, kind, 0);
AT(attnrt_gpu_image, arch, 4);
AT(attnrt_gpu_image, exact, 8);
AT(attnrt_gpu_image, reserved, 12);
AT(attnrt_gpu_image, data, 16);
AT(attnrt_gpu_image, size, 24);
EXACTLY(attnrt_gpu_image, 32);

AT(attnrt_product, struct_size, 0);
AT(attnrt_product, flags, 4);
AT(attnrt_product, left, 8);
AT(attnrt_product, right, 16);
AT(attnrt_product, result, 24);
AT(attnrt_product, bias, 32);
AT(attnrt_product, addend, 40);
AT(attnrt_product, batch, 48);
AT(attnrt_product, rows, 56);
AT(attnrt_product, columns, 64);
AT(attnrt_product, sums, 72);
AT(attnrt_product, scale, 80);
AT(attnrt_product, precision, 84);
AT(attnrt_product, activation, 88);
AT(attnrt_product, left_transposed, 92);
AT(attnrt_product, right_transposed, 96);
AT(attnrt_product, reserved, 100);
AT_LEAST(attnrt_product, 104);

AT(attnrt_device, struct_size, 0);
AT(attnrt_device, exact_arch, 4);
AT(attnrt_device, processors, 8);
AT(attnrt_device, shared_bytes, 12);
AT(attnrt_device, error, 16);
AT(attnrt_device, launch, 24);
AT(attnrt_device, fetch, 32);
AT(attnrt_device, send, 40);
AT(attnrt_device, host_workspace, 48);
AT(attnrt_device, product, 56);
AT(attnrt_device, begin_loop, 64);
AT(attnrt_device, end_loop, 72);
AT_LEAST(attnrt_device, 80);

AT(attnrt_run, struct_size, 0);
AT(attnrt_run, num_threads, 4);
AT(attnrt_run, weights, 8);
AT(attnrt_run, error_message, 16);
AT(attnrt_run, has_tiles, 20);
AT(attnrt_run, error_index, 24);
AT(attnrt_run, error_size, 32);
AT(attnrt_run, workspace, 40);
AT(attnrt_run, output, 48);
AT(attnrt_run, parallel_for, 56);
AT(attnrt_run, fail, 64);
AT(attnrt_run, mark, 72);
AT(attnrt_run, cache, 80);
AT(attnrt_run, device, 88);
AT_LEAST(attnrt_run, 96);

AT(attnrt_entry, struct_size, 0);
AT(attnrt_entry, num_inputs, 4);
AT(attnrt_entry, num_outputs, 8);
AT(attnrt_entry, num_messages, 12);
AT(attnrt_entry, num_states, 16);
AT(attnrt_entry, reserved, 20);
AT(attnrt_entry, name, 24);
AT(attnrt_entry, fn, 32);
AT(attnrt_entry, inputs, 40);
AT(attnrt_entry, outputs, 48);
AT(attnrt_entry, messages, 56);
AT(attnrt_entry, states, 64);
AT_LEAST(attnrt_entry, 72);

AT(attnrt_gpu_code, struct_size, 0);
AT(attnrt_gpu_code, num_images, 4);
AT(attnrt_gpu_code, num_kernels, 8);
AT(attnrt_gpu_code, reserved, 12);
AT(attnrt_gpu_code, images, 16);
AT(attnrt_gpu_code, kernels, 24);
AT_LEAST(attnrt_gpu_code, 32);

AT(attnrt_library, struct_size, 0);
AT(attnrt_library, abi_version, 4);
AT(attnrt_library, num_entries, 8);
AT(attnrt_library, num_weights, 12);
AT(attnrt_library, entries, 16);
AT(attnrt_library, weights, 24);
AT(attnrt_library, required_cpu_features, 32);
AT(attnrt_library, target, 40);
AT(attnrt_library, compiler_version, 48);
AT(attnrt_library, manifest_json, 56);
AT(attnrt_library, gpu, 64);
AT(attnrt_library, optional_cpu_features, 72);
AT_LEAST(attnrt_library, 80);
