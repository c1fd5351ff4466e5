// Arrays that are handed out. They begin on a cache line of their own: JAX and others take such
// arrays as they are, and copy those that lie elsewhere.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "bindings/numpy.h"

namespace envfleet {

namespace nb = nanobind;

// The memory of such arrays. A block of malloc's is as much longer as a cache line is; the array
// begins at the first cache line after its head.
class CacheLineMemory {
  public:
    static constexpr size_t line = 64;

    static void* allocate(void*, size_t size) {
        if (size > std::numeric_limits<size_t>::max() - line) return nullptr;
        return placed(std::malloc(size + line), size);
    }
    static void* allocate_zeros(void* context, size_t count, size_t size) {
        if (size != 0 && count > std::numeric_limits<size_t>::max() / size) return nullptr;
        void* data = allocate(context, count * size);
        return data == nullptr ? nullptr : std::memset(data, 0, count * size);
    }
    static void* reallocate(void* context, void* data, size_t size) {
        void* moved = allocate(context, size);
        if (data == nullptr || moved == nullptr) return moved;
        std::memcpy(moved, data, std::min(size, head_of(data)->size));
        release(context, data, 0);
        return moved;
    }
    static void release(void*, void* data, size_t) {
        if (data != nullptr) std::free(head_of(data)->block);
    }

    // What NumPy frees and resizes an array with that lies here.
    static PyObject* handler() {
        static PyDataMem_Handler functions{
            "envfleet", 1, {nullptr, allocate, allocate_zeros, reallocate, release}};
        static PyObject* capsule = PyCapsule_New(&functions, "mem_handler", nullptr);
        return capsule;
    }

  private:
    struct Head {
        void* block;
        size_t size;
    };
    // malloc's blocks begin at multiples of this, so that a head fits between one and the next
    // line.
    static_assert(alignof(std::max_align_t) >= sizeof(Head));

    static constexpr size_t huge = size_t{1} << 22;

    static Head* head_of(void* data) { return static_cast<Head*>(data) - 1; }

    static void* placed(void* block, size_t size) {
        if (block == nullptr) return nullptr;
        const uintptr_t data = (reinterpret_cast<uintptr_t>(block) + line) / line * line;
        auto* array = reinterpret_cast<std::byte*>(data);
        *head_of(array) = {block, size};
        if (size >= huge) ask_for_huge_pages(data, size);
        return array;
    }

    // As NumPy does for arrays of this size.
    static void ask_for_huge_pages(uintptr_t data, size_t size) {
        constexpr uintptr_t page = 4096;
        const uintptr_t first = (data + page - 1) / page * page;
        madvise(reinterpret_cast<void*>(first), data + size - first, MADV_HUGEPAGE);
    }
};

// An array whose numbers are yet to be written. `descr` is stolen, as by NumPy's own functions.
inline nb::object unwritten_array(PyArray_Descr* descr, int dims, npy_intp* shape) {
    const auto items = static_cast<size_t>(PyArray_MultiplyList(shape, dims));
    const size_t size = items * static_cast<size_t>(PyDataType_ELSIZE(descr));
    const bool is_plain = size < CacheLineMemory::line || PyDataType_REFCHK(descr);
    void* data = is_plain ? nullptr : CacheLineMemory::allocate(nullptr, size);
    if (!is_plain && data == nullptr) {
        Py_DECREF(descr);
        PyErr_NoMemory();
        throw nb::python_error();
    }
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, dims, shape, nullptr, data,
                                           is_plain ? 0 : NPY_ARRAY_CARRAY, nullptr);
    if (array == nullptr) {
        CacheLineMemory::release(nullptr, data, size);
        throw nb::python_error();
    }
    if (!is_plain) {  // from now on it owns its memory, as any array of NumPy's does
        auto* fields = reinterpret_cast<PyArrayObject_fields*>(array);
        fields->mem_handler = CacheLineMemory::handler();
        Py_INCREF(fields->mem_handler);
        PyArray_ENABLEFLAGS(reinterpret_cast<PyArrayObject*>(array), NPY_ARRAY_OWNDATA);
    }
    return nb::steal(array);
}

// A copy of an array.
inline nb::object fresh_copy(PyArrayObject* array) {
    PyArray_Descr* descr = PyArray_DESCR(array);
    Py_INCREF(descr);
    nb::object copy = unwritten_array(descr, PyArray_NDIM(array), PyArray_DIMS(array));
    auto* target = reinterpret_cast<PyArrayObject*>(copy.ptr());
    if (PyArray_ISCARRAY_RO(array) && !PyDataType_REFCHK(descr)) {
        std::memcpy(PyArray_DATA(target), PyArray_DATA(array),
                    static_cast<size_t>(PyArray_NBYTES(array)));
    } else if (PyArray_CopyInto(target, array) < 0) {
        throw nb::python_error();
    }
    return copy;
}

}  // namespace envfleet
