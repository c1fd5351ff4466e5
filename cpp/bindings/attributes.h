// The attributes of Python objects, and cheap ways to see whether they are still what they were:
// numbers that Python keeps anyway.
#pragma once

#include <Python.h>

#include <cstdint>

namespace envfleet {

// Names of attributes, made once.
struct AttributeNames {
    // of wrappers and environments
    PyObject* step = PyUnicode_InternFromString("step");
    PyObject* env = PyUnicode_InternFromString("env");
    PyObject* elapsed = PyUnicode_InternFromString("_elapsed_steps");
    PyObject* limit = PyUnicode_InternFromString("_max_episode_steps");
    // of spaces
    PyObject* n = PyUnicode_InternFromString("n");
    PyObject* start = PyUnicode_InternFromString("start");
    PyObject* dtype = PyUnicode_InternFromString("dtype");
    PyObject* contains = PyUnicode_InternFromString("contains");
    PyObject* quick = PyUnicode_InternFromString("_quick");

    static const AttributeNames& get() {
        static const AttributeNames names;
        return names;
    }
};

// A number that is another after every change of a dict, and another for every dict; 0 where Python
// keeps none, and each look has to be a close one.
inline uint64_t version_of(PyObject* dict) {
#if PY_VERSION_HEX < 0x030C0000
    return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#else
    static_cast<void>(dict);
    return 0;
#endif
}

// A number that is another as soon as a class, or one that it inherits from, was changed in any
// way; 0 while it has none, and nothing is certain.
inline unsigned int class_version_of(const PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030C0000  // later ones have the number 0 while they have no version
    if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) == 0) return 0;
#endif
    return type->tp_version_tag;
}

// Where objects of one class keep the dict of their own attributes. To look there takes neither a
// call nor a new reference.
class AttributesPlace {
  public:
    explicit AttributesPlace([[maybe_unused]] PyObject* object) {
#if PY_VERSION_HEX < 0x030C0000
        if (PyObject** place = _PyObject_GetDictPtr(object)) {
            offset_ = static_cast<int32_t>(reinterpret_cast<char*>(place) -
                                           reinterpret_cast<char*>(object));
        }
#endif
    }

    // Borrowed; null if there is none.
    PyObject* look(PyObject* object) const {
#if PY_VERSION_HEX < 0x030C0000
        if (offset_ == 0) return nullptr;
        return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
#else
        PyObject* attributes = PyObject_GenericGetDict(object, nullptr);
        if (attributes == nullptr) PyErr_Clear();
        Py_XDECREF(attributes);  // the object has it
        return attributes;
#endif
    }

  private:
    int32_t offset_ = 0;  // bytes from the object
};

}  // namespace envfleet
