# Makes llama-server quick to build without making it slower to run. llama.cpp's CMakeLists.txt reads
# this right after its own project(): see CMAKE_PROJECT_llama.cpp_INCLUDE in build-llama-server.sh.
# ggml, where inference spends its time, keeps all its optimisation, and so does what runs for every
# token: sampling over a whole vocabulary, grammars, parsing. Most of the rest is many small files that
# spend their time on the same headers and templates.
function(drainbench_quick_build)
    foreach(part cpp-httplib llama-common llama-server-impl mtmd server-context)
        target_compile_options(${part} PRIVATE -O1)
        set_target_properties(${part} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endforeach()
    # Files that don't go with others in one unit: templates specialised before their first use, a
    # public library that refuses internal headers, and one macro's several definitions.
    set(alone common/json.cpp tools/mtmd/mtmd-helper.cpp tools/mtmd/mtmd-helper-gen.cpp)
    foreach(name caps lexer parser runtime)
        list(APPEND alone common/jinja/${name}.cpp)
    endforeach()
    target_compile_options(llama PRIVATE -O1)
    foreach(name sampling reasoning-budget peg-parser chat-peg-parser)
        list(APPEND per_token common/${name}.cpp)
    endforeach()
    foreach(name sampler grammar vocab batch context graph kv-cache kv-cache-iswa
            memory-recurrent memory-hybrid memory-hybrid-iswa)
        list(APPEND per_token src/llama-${name}.cpp)
    endforeach()
    list(TRANSFORM alone PREPEND ${CMAKE_SOURCE_DIR}/)
    list(TRANSFORM per_token PREPEND ${CMAKE_SOURCE_DIR}/)
    set_source_files_properties(${alone} ${per_token} TARGET_DIRECTORY llama llama-common mtmd
        PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_source_files_properties(${per_token} TARGET_DIRECTORY llama llama-common
        PROPERTIES COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON)
    target_precompile_headers(llama PRIVATE
        <algorithm> <functional> <map> <memory> <regex> <set> <sstream> <stdexcept> <string>
        <unordered_map> <unordered_set> <vector>)
endfunction()
cmake_language(DEFER CALL drainbench_quick_build)   # once the targets are there
