# The CUDA compiler and runtime; only read with FLOTILLA_CUDA. Kernels use instructions of Hopper (sm_90a), which run on no
# other architecture; the runtime is linked statically, so that a binary starts where there is no CUDA at all.
find_program(FLOTILLA_NVCC nvcc PATHS /usr/local/cuda/bin)
if(NOT CMAKE_CUDA_COMPILER AND FLOTILLA_NVCC)
  set(CMAKE_CUDA_COMPILER ${FLOTILLA_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
# CMake 3.25 does not know the dialects of nvcc 13.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
if(FLOTILLA_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${FLOTILLA_CCACHE})
endif()
find_package(CUDAToolkit 12.4 REQUIRED)
