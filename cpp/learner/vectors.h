// Vectors of floats as the compiler knows them, and functions of them. Included by kernels_code.h
// within the namespace of an instruction set; nothing here is visible to another file, lest the
// linker take one instruction set's copy of a function for another's.

typedef float Vector __attribute__((vector_size(lanes * 4)));
typedef float Unaligned __attribute__((vector_size(lanes * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(lanes * 4)));

#define ENVFLEET_INLINE static inline __attribute__((always_inline))

ENVFLEET_INLINE Vector load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
ENVFLEET_INLINE void store(float* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }
ENVFLEET_INLINE Vector all(float value) { return Vector{} + value; }
ENVFLEET_INLINE Integers bits(Vector value) { return reinterpret_cast<Integers>(value); }
ENVFLEET_INLINE Vector from_bits(Integers value) { return reinterpret_cast<Vector>(value); }

ENVFLEET_INLINE Integers load_integers(const int32_t* from) {
    typedef int32_t Loose __attribute__((vector_size(lanes * 4), aligned(4), may_alias));
    return *reinterpret_cast<const Loose*>(from);
}
ENVFLEET_INLINE Vector absolute(Vector x) { return from_bits(bits(x) & 0x7fffffff); }

// The lanes added up pair by pair.
ENVFLEET_INLINE float sum(Vector value) {
    float parts[lanes];
    store(parts, value);
    for (int width = lanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
    }
    return parts[0];
}

// 2^n, for whole n from -126 to 127.
ENVFLEET_INLINE Vector power_of_two(Integers n) { return from_bits((n + 127) << 23); }

// exp(x) / 2^n for the whole number n nearest to x / log(2), which is written.
ENVFLEET_INLINE Vector reduced_exp(Vector x, Vector& n) {
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest whole number.
    const float magic = 12582912.0f;
    n = (x * 1.44269504088896341f + magic) - magic;
    const Vector r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Vector p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r + 1.0f;
}

// Within 1 unit in the last place; 0 below the smallest normal number, infinite above the largest.
ENVFLEET_INLINE Vector exp_of(Vector x) {
    const float largest = 88.7228391f, smallest = -87.3365448f;
    Vector within = x > largest ? all(largest) : x;
    within = within < smallest ? all(smallest) : within;
    Vector n;
    const Vector p = reduced_exp(within, n);
    // Times 2^n in two halves: 2^128 alone would be infinite.
    const Integers whole = __builtin_convertvector(n, Integers), half = whole >> 1;
    const Vector power = p * power_of_two(half) * power_of_two(whole - half);
    Vector result = x > largest ? all(__builtin_inff()) : power;
    result = x < smallest ? all(0.0f) : result;
    return x != x ? x : result;
}

// Within 2 units in the last place: a polynomial near 0, and 1 - 2 / (exp(2 |x|) + 1) elsewhere.
// NaN stays NaN: no comparison with it holds.
ENVFLEET_INLINE Vector tanh_of(Vector x) {
    const Vector size = absolute(x);
    const Vector within = size > 9.1f ? all(9.1f) : size;  // where it is 1 to the last bit
    Vector n;
    const Vector e = reduced_exp(within + within, n);
    const Vector power = e * power_of_two(__builtin_convertvector(n, Integers));
    const Vector far = 1.0f - 2.0f / (power + 1.0f);
    const Vector signed_far = from_bits(bits(far) | (bits(x) & INT32_MIN));
    const Vector z = x * x;
    Vector p = all(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z + -5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z + -3.33332819422e-1f;
    return size > 0.625f ? signed_far : x + x * z * p;
}

// Of positive normal numbers, within 1 unit in the last place; what is not positive gives NaN,
// infinity and NaN give themselves.
ENVFLEET_INLINE Vector log_of(Vector x) {
    const Integers raw = bits(x);
    // The mantissa between sqrt(1/2) and sqrt(2), and the power of 2 that goes with it.
    const Integers exponent = (raw - 0x3f3504f3) >> 23;
    const Vector m = from_bits(raw - (exponent << 23)) - 1.0f;
    const Vector e = __builtin_convertvector(exponent, Vector);
    const Vector z = m * m;
    Vector p = all(7.0376836292e-2f);
    p = p * m + -1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m + -1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m + -1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m + -2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    Vector y = p * m * z;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * z;
    Vector result = (m + y) + e * 0.693359375f;
    result = x == __builtin_inff() ? x : result;
    return x > 0.0f ? result : all(__builtin_nanf(""));
}

// 1 / (1 + exp(-x)), given exp(-|x|).
ENVFLEET_INLINE Vector sigmoid_of(Vector x, Vector tail) {
    return (x > 0.0f ? all(1.0f) : tail) / (1.0f + tail);
}

// The log deviation of a squashed Gaussian between its limits.
ENVFLEET_INLINE Vector limited_log_std(Vector x) {
    x = x < -20.0f ? all(-20.0f) : x;
    return x > 2.0f ? all(2.0f) : x;
}
