// A call of XLA's foreign function interface: its arrays, and the answer to it.
//
// The header of the interface is XLA's own, unchanged: cpp/vendor/xla. The parts of it that are
// used here are the same in all its versions so far, 0.1 to 0.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "bindings/infos.h"
#include "vendor/xla/c_api.h"

namespace envfleet {

// Bytes of a number, 0 for types that no environment has.
inline size_t xla_size(XLA_FFI_DataType type) {
    switch (type) {
        case XLA_FFI_DataType_PRED:
        case XLA_FFI_DataType_S8:
        case XLA_FFI_DataType_U8:
            return 1;
        case XLA_FFI_DataType_S16:
        case XLA_FFI_DataType_U16:
        case XLA_FFI_DataType_F16:
            return 2;
        case XLA_FFI_DataType_S32:
        case XLA_FFI_DataType_U32:
        case XLA_FFI_DataType_F32:
            return 4;
        case XLA_FFI_DataType_S64:
        case XLA_FFI_DataType_U64:
        case XLA_FFI_DataType_F64:
            return 8;
        default:
            return 0;
    }
}

// What JAX makes of a type of 64 bits, unless it was told to have such.
inline XLA_FFI_DataType xla_half(XLA_FFI_DataType type) {
    switch (type) {
        case XLA_FFI_DataType_S64:
            return XLA_FFI_DataType_S32;
        case XLA_FFI_DataType_U64:
            return XLA_FFI_DataType_U32;
        case XLA_FFI_DataType_F64:
            return XLA_FFI_DataType_F32;
        default:
            return type;
    }
}

// The type of an array's numbers.
inline XLA_FFI_DataType xla_type_of(const Column& column) {
    const PyArray_Descr* type = PyArray_DESCR(column.numpy());
    const auto among = [size = PyArray_ITEMSIZE(column.numpy())](
                           XLA_FFI_DataType one, XLA_FFI_DataType two, XLA_FFI_DataType four,
                           XLA_FFI_DataType eight) {
        return size == 1 ? one : size == 2 ? two : size == 4 ? four : eight;
    };
    constexpr auto none = XLA_FFI_DataType_INVALID;
    switch (type->kind) {
        case 'b':
            return XLA_FFI_DataType_PRED;
        case 'i':
            return among(XLA_FFI_DataType_S8, XLA_FFI_DataType_S16, XLA_FFI_DataType_S32,
                         XLA_FFI_DataType_S64);
        case 'u':
            return among(XLA_FFI_DataType_U8, XLA_FFI_DataType_U16, XLA_FFI_DataType_U32,
                         XLA_FFI_DataType_U64);
        case 'f':
            return among(none, XLA_FFI_DataType_F16, XLA_FFI_DataType_F32, XLA_FFI_DataType_F64);
        default:
            return none;
    }
}

// Numbers in a row.
struct XlaArray {
    XLA_FFI_DataType type;
    std::byte* data;
    size_t count;

    bool is_handle() const { return type == XLA_FFI_DataType_U32 && count == 2; }
};

template <class From, class To>
void xla_convert_all(const std::byte* from, std::byte* to, size_t count) {
    const auto* source = reinterpret_cast<const From*>(from);
    auto* target = reinterpret_cast<To*>(to);
    for (size_t i = 0; i < count; ++i) target[i] = static_cast<To>(source[i]);
}

using XlaConversion = void (*)(const std::byte* from, std::byte* to, size_t count);

// What makes numbers of half or twice the precision; none for numbers of the same type.
inline XlaConversion xla_conversion(XLA_FFI_DataType from, XLA_FFI_DataType to) {
    if (from == to) return nullptr;
    switch (from) {
        case XLA_FFI_DataType_F64:
            return &xla_convert_all<double, float>;
        case XLA_FFI_DataType_S64:
            return &xla_convert_all<int64_t, int32_t>;
        case XLA_FFI_DataType_U64:
            return &xla_convert_all<uint64_t, uint32_t>;
        case XLA_FFI_DataType_F32:
            return &xla_convert_all<float, double>;
        case XLA_FFI_DataType_S32:
            return &xla_convert_all<int32_t, int64_t>;
        default:
            return &xla_convert_all<uint32_t, uint64_t>;
    }
}

class XlaCall {
  public:
    // Answers a call with what work(call) says is wrong, or with nothing if that is empty.
    template <class Work>
    static XLA_FFI_Error* answer(XLA_FFI_CallFrame* frame, const Work& work) noexcept {
        if (tells_about_itself(frame)) return nullptr;
        try {
            XlaCall call(*frame);
            const std::string problem = work(call);
            return problem.empty() ? nullptr : error(*frame->api, problem.c_str());
        } catch (const std::exception& thrown) {
            return error(*frame->api, thrown.what());
        }
    }

    const std::vector<XlaArray>& arguments() const { return arguments_; }
    const std::vector<XlaArray>& results() const { return results_; }

  private:
    explicit XlaCall(const XLA_FFI_CallFrame& frame)
        : arguments_(arrays(frame.args.args, frame.args.size)),
          results_(arrays(frame.rets.rets, frame.rets.size)) {}

    // All of XLA's arguments and results are arrays so far.
    static std::vector<XlaArray> arrays(void** buffers, int64_t size) {
        std::vector<XlaArray> all;
        for (int64_t i = 0; i < size; ++i) {
            const auto* buffer = static_cast<const XLA_FFI_Buffer*>(buffers[i]);
            size_t count = 1;
            for (int64_t dim = 0; dim < buffer->rank; ++dim) {
                count *= static_cast<size_t>(buffer->dims[dim]);
            }
            all.push_back({buffer->dtype, static_cast<std::byte*>(buffer->data), count});
        }
        return all;
    }

    // XLA asks first which version of the interface this was compiled for: it is told its own.
    static bool tells_about_itself(XLA_FFI_CallFrame* frame) {
        XLA_FFI_Extension_Base* extension = frame->extension_start;
        if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
        auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
        const int minor =
            frame->api == nullptr ? XLA_FFI_API_MINOR : frame->api->api_version.minor_version;
        metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                                 minor};
        metadata->traits = 0;
        if (minor > 1) metadata->state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;  // 0.1 has no room for it
        return true;
    }

    static XLA_FFI_Error* error(const XLA_FFI_Api& api, const char* message) {
        XLA_FFI_Error_Create_Args arguments{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message,
                                            XLA_FFI_Error_Code_FAILED_PRECONDITION};
        return api.XLA_FFI_Error_Create(&arguments);
    }

    std::vector<XlaArray> arguments_, results_;
};

}  // namespace envfleet
