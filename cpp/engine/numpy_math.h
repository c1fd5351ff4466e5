// NumPy's sine, cosine and dot product, and Python's square.
//
// Gymnasium's environments compute with NumPy, whose functions need not give the last digit of the
// C library's: on some processors it brings its own. So whoever knows NumPy hands its compiled
// loops over, and environments that must give the same numbers call them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace envfleet {

// A loop of a NumPy ufunc with one input and one output.
struct UfuncLoop {
    using Function = void (*)(char** arrays, const intptr_t* count, const intptr_t* strides,
                              void* data);
    Function function;
    void* data = nullptr;

    template <class Real>
    void operator()(const Real* in, Real* out, size_t count) const {
        char* arrays[2] = {const_cast<char*>(reinterpret_cast<const char*>(in)),
                           reinterpret_cast<char*>(out)};
        const auto dimension = static_cast<intptr_t>(count);
        const intptr_t strides[2] = {sizeof(Real), sizeof(Real)};
        function(arrays, &dimension, strides, data);
    }
    template <class Real>
    Real operator()(Real x) const {
        Real y;
        (*this)(&x, &y, 1);
        return y;
    }
};

// The C library's functions in the same form, for programs without NumPy.
template <class Real, Real (*f)(Real)>
void plain_loop(char** arrays, const intptr_t* count, const intptr_t*, void*) {
    const auto* in = reinterpret_cast<const Real*>(arrays[0]);
    auto* out = reinterpret_cast<Real*>(arrays[1]);
    for (intptr_t i = 0; i < *count; ++i) out[i] = f(in[i]);
}

// NumPy's product of two vectors, which is BLAS's.
struct DotProduct {
    using Function = void (*)(void* x, intptr_t x_stride, void* y, intptr_t y_stride, void* out,
                              intptr_t count, void* array);
    Function function;

    double operator()(const double* x, const double* y, size_t count) const {
        double product;
        function(const_cast<double*>(x), sizeof(double), const_cast<double*>(y), sizeof(double),
                 &product, static_cast<intptr_t>(count), nullptr);
        return product;
    }
};

inline void plain_dot(void* x, intptr_t, void* y, intptr_t, void* out, intptr_t count, void*) {
    double product = 0;
    for (intptr_t i = 0; i < count; ++i) {
        product += static_cast<double*>(x)[i] * static_cast<double*>(y)[i];
    }
    *static_cast<double*>(out) = product;
}

// x ** 2 of a Python float or NumPy scalar: the C library's pow, whose last digit is not always
// that of x * x. The exponent is volatile because compilers think they know better.
template <class Real>
Real squared(Real x) {
    static const volatile Real two = 2;
    return std::pow(x, two);
}

struct NumpyMath {
    UfuncLoop sin{plain_loop<double, std::sin>};
    UfuncLoop cos{plain_loop<double, std::cos>};
    UfuncLoop sin_single{plain_loop<float, std::sin>};
    UfuncLoop cos_single{plain_loop<float, std::cos>};
    DotProduct dot{plain_dot};
};

// Set once, before any environment runs.
inline NumpyMath numpy_math;

}  // namespace envfleet
