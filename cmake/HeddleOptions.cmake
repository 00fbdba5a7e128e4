# Language level, warnings, optimisation, sanitizers, compiler cache, linker, output folders. All of it holds for Heddle's own
# folders only: a project that has Heddle as a subproject keeps its own, and its flags of the build types hold for Heddle too.
include_guard(GLOBAL)
include(CheckLinkerFlag)

option(HEDDLE_WERROR "Treat warnings as errors" OFF)
option(HEDDLE_TESTS "Build tests, fuzzers and benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(HEDDLE_CLI "Build the command-line tool" ${PROJECT_IS_TOP_LEVEL})
option(HEDDLE_INSTALL "Make rules for cmake --install" ${PROJECT_IS_TOP_LEVEL})
option(HEDDLE_CPU "Build the CPU backend (LLVM, oneDNN)" ON)
option(HEDDLE_CUDA "Build the CUDA backend (headers only, libraries are loaded at run time)" ON)
option(HEDDLE_PCH "Precompile the standard headers" ON)
set(HEDDLE_SANITIZE "" CACHE STRING "address,undefined or thread or empty")
set(HEDDLE_ENV_DIR "${PROJECT_SOURCE_DIR}/.env" CACHE PATH "Private Python environment made by ./dev setup")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# -fPIC everywhere, executables too: one precompiled header then serves all targets.
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
add_compile_options(-fPIC)

set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib")

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Dev)
  endif()
  # Fast compiles, usable backtraces; the library's own checks (an element of an empty vector, ...) stand in everything that
  # tests run.
  set(CMAKE_CXX_FLAGS_DEV "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
  set(CMAKE_C_FLAGS_DEV "-O1 -g1")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2")
endif()
add_compile_options($<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-fno-semantic-interposition>)

# Bits are part of the contract: nothing is contracted or reassociated unless a kernel says so.
add_compile_options(-ffp-contract=off -fno-fast-math)
add_compile_options(-Wall -Wextra -Wshadow -Wno-missing-field-initializers -Wno-dangling-else)
if(HEDDLE_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Flow-sensitive warnings have false positives in g++ 12's own headers: shown, not fatal.
  add_compile_options(-Winvalid-pch -Wno-restrict)
  add_compile_options(-Wno-error=invalid-pch -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow
                      -Wno-error=stringop-overread -Wno-error=free-nonheap-object)
endif()
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)

if(HEDDLE_SANITIZE)
  add_compile_options(-fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEDDLE_SANITIZE})
  if(HEDDLE_SANITIZE MATCHES "undefined")
    # These double the compile time and find what AddressSanitizer traps anyway.
    add_compile_options(-fno-sanitize=null,alignment,vptr,object-size,pointer-overflow,returns-nonnull-attribute)
  endif()
endif()

# Linker: the fastest that is there.
if(NOT DEFINED HEDDLE_LINKER)
  set(HEDDLE_LINKER "" CACHE STRING "mold, lld or empty for the default")
  foreach(candidate IN ITEMS mold lld)
    check_linker_flag(CXX "-fuse-ld=${candidate}" HEDDLE_HAVE_${candidate})
    if(HEDDLE_HAVE_${candidate})
      set(HEDDLE_LINKER "${candidate}" CACHE STRING "" FORCE)
      break()
    endif()
  endforeach()
endif()
if(HEDDLE_LINKER)
  add_link_options(-fuse-ld=${HEDDLE_LINKER})
endif()
add_link_options(-Wl,--gc-sections)
add_compile_options(-ffunction-sections)

# Compiler cache, shared by several checkouts: paths below the source folder are made relative.
find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher "${CMAKE_COMMAND};-E;env;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1"
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
      "CCACHE_PCH_EXTSUM=1;${HEDDLE_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()
