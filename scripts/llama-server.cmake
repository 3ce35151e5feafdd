# Makes llama-server quick to build without making it slower to run. llama.cpp's CMakeLists.txt reads
# this right after its own project(): see CMAKE_PROJECT_llama.cpp_INCLUDE in build-llama-server.sh.
# ggml, where inference spends its time, keeps all its optimisation. Most of the rest is many small
# files that spend their time on the same headers and templates.
function(drainbench_quick_build)
    foreach(part cpp-httplib llama-common llama-server-impl mtmd server-context)
        target_compile_options(${part} PRIVATE -O1)
        set_target_properties(${part} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endforeach()
    # Files that don't go with others in one unit: templates specialised before their first use, and
    # a public library that refuses internal headers.
    foreach(file common/json.cpp tools/mtmd/mtmd-helper.cpp tools/mtmd/mtmd-helper-gen.cpp)
        set_source_files_properties(${CMAKE_SOURCE_DIR}/${file} TARGET_DIRECTORY llama-common mtmd
            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endforeach()
    target_compile_options(llama PRIVATE -O1)
    target_precompile_headers(llama PRIVATE
        <algorithm> <functional> <map> <memory> <regex> <set> <sstream> <stdexcept> <string>
        <unordered_map> <unordered_set> <vector>)
endfunction()
cmake_language(DEFER CALL drainbench_quick_build)   # once the targets are there
