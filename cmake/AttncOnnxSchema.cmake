# The ONNX schema is not copied: it comes from the pinned `onnx` wheel, whose
# package name is changed so that another ONNX in the same process (PyTorch's,
# ONNX Runtime's) can never meet ours.
#
# Sets ATTNC_ONNX_PROTO. Searched in this order: -DATTNC_ONNX_PROTO=FILE, the
# project's .venv, the `onnx` package of the python3 on the path.
set(ATTNC_ONNX_PROTO "" CACHE FILEPATH "onnx.proto of the onnx wheel ('' : search)")

function(attnc_find_onnx_proto result)
  if(ATTNC_ONNX_PROTO)
    if(NOT EXISTS ${ATTNC_ONNX_PROTO})
      message(FATAL_ERROR "ATTNC_ONNX_PROTO names '${ATTNC_ONNX_PROTO}', which does not exist")
    endif()
    set(${result} ${ATTNC_ONNX_PROTO} PARENT_SCOPE)
    return()
  endif()
  file(GLOB found ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/onnx/onnx.proto)
  if(NOT found)
    execute_process(
      COMMAND python3 -c "import onnx, os; print(os.path.join(os.path.dirname(onnx.__file__), 'onnx.proto'))"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(NOT found OR NOT EXISTS "${found}")
    message(FATAL_ERROR "onnx.proto not found: run ./dev, which makes .venv with the onnx package, "
                        "or configure with -DATTNC_ONNX_PROTO=FILE")
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# attnc_onnx_schema(TARGET): a static library of the generated lite messages.
# Header: "<current binary dir under the build>/attnc_onnx.pb.h".
function(attnc_onnx_schema target)
  find_package(Protobuf 3.12 REQUIRED)
  attnc_find_onnx_proto(source)
  message(STATUS "ONNX schema: ${source}")
  file(READ ${source} text)
  if(NOT text MATCHES "\npackage onnx;" OR NOT text MATCHES "optimize_for = LITE_RUNTIME")
    message(FATAL_ERROR "'${source}' is not the lite ONNX schema of an onnx wheel")
  endif()
  string(REPLACE "\npackage onnx;" "\npackage attnc_onnx_proto;" text "${text}")
  # On the wire a number of 32 bits is one of 64, of which a reader drops the upper half: 2^32 + 1 would be float.
  string(REPLACE "optional int32 elem_type =" "optional int64 elem_type =" text "${text}")
  string(REPLACE "optional int32 data_type =" "optional int64 data_type =" text "${text}")
  set(proto ${CMAKE_CURRENT_BINARY_DIR}/attnc_onnx.proto)
  file(CONFIGURE OUTPUT ${proto} CONTENT "${text}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})

  set(generated ${CMAKE_CURRENT_BINARY_DIR}/attnc_onnx.pb.cc ${CMAKE_CURRENT_BINARY_DIR}/attnc_onnx.pb.h)
  add_custom_command(OUTPUT ${generated}
    COMMAND ${Protobuf_PROTOC_EXECUTABLE} --cpp_out=${CMAKE_CURRENT_BINARY_DIR}
            --proto_path=${CMAKE_CURRENT_BINARY_DIR} ${proto}
    DEPENDS ${proto} VERBATIM COMMENT "Generating the ONNX schema's messages")
  # Not one of our libraries: no LLVM flags, and its warnings are not ours.
  add_library(${target} STATIC ${generated})
  target_compile_options(${target} PRIVATE -w -fvisibility=hidden)
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf-lite)
endfunction()
