# program.cmake -- the program ambi: everything but main is a library, so that the tests can use its parts.
# util: readers and writers of files, which know nothing of ambi. models: language models over the public header.
file(GLOB UTIL_SOURCES CONFIGURE_DEPENDS util/*.c)
file(GLOB MODELS_SOURCES CONFIGURE_DEPENDS models/*.c)
file(GLOB CLI_SOURCES CONFIGURE_DEPENDS cli/*.c)
list(REMOVE_ITEM CLI_SOURCES ${PROJECT_SOURCE_DIR}/cli/main.c)
add_library(ambi_util STATIC ${UTIL_SOURCES})
embed_texts(MODELS_TEXTS ${PROJECT_SOURCE_DIR}/models/report.html)
add_library(ambi_models STATIC ${MODELS_SOURCES} ${MODELS_TEXTS})
add_library(ambi_cli STATIC ${CLI_SOURCES})
add_executable(ambi cli/main.c)
foreach(target ambi_util ambi_models ambi_cli ambi)
  target_compile_options(${target} PRIVATE -std=gnu11 -Wall -Wextra -Wconversion -Wshadow
                         $<$<BOOL:${AMBI_WERROR}>:-Werror>)
endforeach()
# What `ambi train` learns when it is given nothing. Made once a configuration: it need not follow every edit.
set(CORPUS ${CMAKE_CURRENT_BINARY_DIR}/corpus)
if(NOT EXISTS ${CORPUS})
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUT=${CORPUS}
                          -P ${PROJECT_SOURCE_DIR}/cmake/corpus.cmake COMMAND_ERROR_IS_FATAL ANY)
endif()
set_source_files_properties(cli/corpus.c PROPERTIES COMPILE_DEFINITIONS "CORPUS=\"${CORPUS}\""
                            OBJECT_DEPENDS ${CORPUS})
target_link_libraries(ambi_util PUBLIC m)
target_link_libraries(ambi_models PUBLIC ambi_util ambi_static)
target_link_libraries(ambi_cli PUBLIC ambi_models)
target_link_libraries(ambi PRIVATE ambi_cli)
