# corpus.cmake -- cmake -DOUT=FILE -DROOT=FOLDER -P corpus.cmake: the project's own sources and documents as one file, a
# NUL after each, for `ambi train` without arguments.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/include/*.h ${ROOT}/src/*.c ${ROOT}/src/*.h ${ROOT}/src/*.cu
     ${ROOT}/src/*.def ${ROOT}/util/*.[ch] ${ROOT}/models/*.[ch] ${ROOT}/cli/*.[ch] ${ROOT}/tests/*.[ch]
     ${ROOT}/examples/*.[ch] ${ROOT}/docs/*.md ${ROOT}/bindings/*.md)
file(GLOB top RELATIVE ${ROOT} ${ROOT}/*.md) # not below: a build folder may be there
list(APPEND files ${top})
list(SORT files)
set(list)
foreach(f ${files})
  list(APPEND list "${ROOT}/${f}")
endforeach()
string(REPLACE ";" "\n" names "${list}")
file(WRITE ${OUT}.names "${names}\n")
execute_process(COMMAND sh -c "while read -r f; do cat \"$f\"; printf '\\0'; done <\"$1\" >\"$2.part\" && mv \"$2.part\" \"$2\""
                        sh ${OUT}.names ${OUT} COMMAND_ERROR_IS_FATAL ANY)
