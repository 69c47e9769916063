# What each wheel has beside its code: licences, and a list of what is in it (CycloneDX).
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
set(metadata ${CMAKE_CURRENT_BINARY_DIR}/metadata)
execute_process(COMMAND ${Python_EXECUTABLE} ${root}/python/sbom.py ${SKBUILD_PROJECT_NAME} ${SKBUILD_PROJECT_VERSION} ${metadata}
                COMMAND_ERROR_IS_FATAL ANY)
install(DIRECTORY ${metadata}/ DESTINATION ${SKBUILD_METADATA_DIR} COMPONENT python)
install(FILES ${root}/LICENSE DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT python)
