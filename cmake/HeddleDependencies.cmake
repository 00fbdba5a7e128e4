# Third-party packages. What only one folder needs is looked for by that folder.
include_guard(GLOBAL)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Python packages carry CMake configs and headers: .env/lib/python3.x/site-packages and .env itself.
file(GLOB HEDDLE_SITE_PACKAGES "${HEDDLE_ENV_DIR}/lib/python3*/site-packages")
list(APPEND CMAKE_PREFIX_PATH "${HEDDLE_ENV_DIR}" ${HEDDLE_SITE_PACKAGES})

# The CUDA headers: a toolkit, else NVIDIA's wheels.
set(cuda_hints "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
foreach(site IN LISTS HEDDLE_SITE_PACKAGES)
  list(APPEND cuda_hints "${site}/nvidia/cu13")
endforeach()
find_path(HEDDLE_CUDA_INCLUDE NAMES cuda.h PATHS ${cuda_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
