// A perceptron as a policy, as Python makes it.
#include "bindings/policy.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/perceptron.h"
#include "bindings/perceptron_policy.h"

namespace envfleet {
namespace {

using Noise = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Bound = std::vector<double>;
using Bounds = std::tuple<Bound, Bound, Bound, Bound, Bound, Bound>;

Head head_named(const std::string& name) {
    if (name == "categorical") return Head::categorical;
    if (name == "bernoulli") return Head::bernoulli;
    if (name == "normal") return Head::normal;
    if (name == "squashed") return Head::squashed;
    throw std::invalid_argument("There is no head called \"" + name + "\".");
}

std::optional<ActionBounds> bounds_of(const std::optional<Bounds>& given) {
    if (!given) return std::nullopt;
    const auto& [least, most, centre, scale, low, high] = *given;
    return ActionBounds{least, most, centre, scale, low, high};
}

// Refuses what would be read beyond its end.
void check(const learner::Perceptron& network, const PolicySetup& setup,
           const std::optional<Noise>& noise, const std::optional<FloatArray>& log_deviations) {
    const auto outputs = static_cast<size_t>(network.outputs());
    const size_t parts = setup.head == Head::squashed ? outputs / 2 : outputs;
    const auto need = [](bool holds, const char* what) {
        if (!holds) throw std::invalid_argument(std::string("policy: ") + what);
    };
    need(setup.sizes.size() == setup.starts.size(), "expected a first action for each choice");
    if (setup.head == Head::categorical) {
        need(!setup.sizes.empty() && std::all_of(setup.sizes.begin(), setup.sizes.end(),
                                                 [](int64_t size) { return size > 0; }),
             "expected choices among one action or more");
        const int64_t sum = std::accumulate(setup.sizes.begin(), setup.sizes.end(), int64_t{0});
        need(static_cast<size_t>(sum) == outputs, "the choices do not fit the outputs");
    }
    need(setup.head != Head::squashed || outputs % 2 == 0, "expected means and deviations");
    need(setup.head != Head::normal || (log_deviations && log_deviations->size() == outputs),
         "expected a deviation for each output");
    need(!noise || noise->shape(2) == parts, "the noise does not fit the outputs");
    if (!setup.bounds) return;
    for (const auto* bound : {&setup.bounds->least, &setup.bounds->most, &setup.bounds->centre,
                              &setup.bounds->scale, &setup.bounds->low, &setup.bounds->high}) {
        need(bound->size() == parts, "the bounds do not fit the outputs");
    }
}

// Keeps what the policy uses by address.
class TorchPolicy final : public PerceptronPolicy {
  public:
    TorchPolicy(nb::object network, PolicySetup setup, std::optional<Noise> noise, size_t steps,
                size_t rows, std::optional<FloatArray> log_deviations)
        : PerceptronPolicy(nb::cast<const TorchPerceptron&>(network).network(), std::move(setup),
                           {noise ? noise->data() : nullptr, steps, rows}),
          network_(std::move(network)),
          noise_(std::move(noise)),
          log_deviations_(std::move(log_deviations)),
          room_(room()) {}

    // One step of all rows, with the statistics and deviations of now. False if a row has no
    // action.
    bool act_once(size_t step, const Bytes& observations, const Bytes& actions) {
        const Sizes needed = sizes();
        if (step >= needed.steps || observations.nbytes() != needed.rows * needed.observation ||
            actions.nbytes() != needed.rows * needed.action) {
            throw std::invalid_argument("policy: it was made for other observations or actions");
        }
        refresh();
        taken_.resize(needed.rows * needed.taken);
        return act(*room_, step, 0, needed.rows, static_cast<const std::byte*>(observations.data()),
                   static_cast<std::byte*>(actions.data()), taken_.data());
    }

  private:
    nb::object network_;
    std::optional<Noise> noise_;
    std::optional<FloatArray> log_deviations_;
    std::unique_ptr<Room> room_;
    std::vector<std::byte> taken_;
};

}  // namespace

void bind_policy(nb::module_& module) {
    nb::module_::import_("envfleet._native");  // which knows what a RowPolicy is
    nb::class_<TorchPolicy, RowPolicy>(module, "Policy",
                                       "A perceptron whose outputs become actions.")
        .def(
            "__init__",
            [](TorchPolicy* self, nb::object network, const std::string& head,
               std::vector<int64_t> sizes, std::vector<int64_t> starts, bool sees_doubles,
               bool takes_doubles, size_t steps, size_t rows, std::optional<Noise> noise,
               std::optional<FloatArray> log_deviations, const std::optional<Bounds>& bounds,
               bool judges) {
                PolicySetup setup{
                    head_named(head),  std::move(sizes),
                    std::move(starts), log_deviations ? log_deviations->data() : nullptr,
                    sees_doubles,      bounds_of(bounds),
                    takes_doubles,     judges};
                check(nb::cast<const TorchPerceptron&>(network).network(), setup, noise,
                      log_deviations);
                if (noise && (noise->shape(0) < steps || noise->shape(1) != rows)) {
                    throw std::invalid_argument("policy: the noise does not fit steps and rows");
                }
                new (self) TorchPolicy(std::move(network), std::move(setup), std::move(noise),
                                       steps, rows, std::move(log_deviations));
            },
            nb::arg("network"), nb::arg("head"), nb::arg("sizes"), nb::arg("starts"),
            nb::arg("sees_doubles"), nb::arg("takes_doubles"), nb::arg("steps"), nb::arg("rows"),
            nb::arg("noise").none(), nb::arg("log_deviations").none(), nb::arg("bounds").none(),
            nb::arg("judges"))
        .def("act", &TorchPolicy::act_once, nb::arg("step"), nb::arg("observations").noconvert(),
             nb::arg("actions").noconvert(),
             "Writes the actions of one step; False if some row has none.");
}

}  // namespace envfleet
