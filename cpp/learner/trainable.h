// What learning needs beside a forward pass: the gradient of a perceptron, and Adam's steps on
// torch's own parameters and state.
//
//     for each block of a batch:  inputs(), forward()  ──▶  the loss fills delta()  ──▶  backward()
//     Adam::gradient_norm()  ──▶  Adam::step()
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "learner/memory.h"
#include "learner/perceptron.h"

namespace envfleet::learner {

// A tensor of torch's and what torch.optim.Adam(fused=True) remembers about it.
struct Parameter {
    float* value;
    float* mean;    // exp_avg
    float* square;  // exp_avg_sq
    float* step;    // one number: how many steps were taken
    ptrdiff_t count;
};

struct AdamSettings {
    double rate, beta1, beta2, epsilon;
};

// Parameters that take their steps together, each with room for its gradient.
class Adam {
  public:
    Adam(std::vector<Parameter> parameters, const Kernels& kernels)
        : parameters_(std::move(parameters)), kernels_(&kernels) {
        for (const Parameter& each : parameters_) gradients_.emplace_back(each.count);
    }

    size_t size() const { return parameters_.size(); }
    const Parameter& parameter(size_t index) const { return parameters_[index]; }
    float* gradient(size_t index) { return gradients_[index].data(); }
    const float* gradient(size_t index) const { return gradients_[index].data(); }

    // The length of all gradients together; not finite if one of them is not.
    double gradient_norm() const {
        double sum = 0;
        for (const Floats& each : gradients_) {
            sum += static_cast<double>(kernels_->squared_norm(each.data(), each.size()));
        }
        return std::sqrt(sum);
    }

    // One step of all parameters, their gradients multiplied by `scale`.
    void step(const AdamSettings& settings, double scale) {
        for (size_t i = 0; i < parameters_.size(); ++i) {
            const Parameter& each = parameters_[i];
            const double steps = static_cast<double>(*each.step += 1);
            const double first = 1 - std::pow(settings.beta1, steps);
            const double second = 1 - std::pow(settings.beta2, steps);
            kernels_->adam(each.value, each.mean, each.square, gradients_[i].data(), each.count,
                           {.beta1 = static_cast<float>(settings.beta1),
                            .beta2 = static_cast<float>(settings.beta2),
                            .step_size = static_cast<float>(settings.rate / first),
                            .root_correction = static_cast<float>(std::sqrt(second)),
                            .epsilon = static_cast<float>(settings.epsilon),
                            .gradient_scale = static_cast<float>(scale)});
        }
    }

  private:
    std::vector<Parameter> parameters_;
    std::vector<Floats> gradients_;
    const Kernels* kernels_;
};

// Room for gradients of the same parameters beside the optimiser's, for a second thread.
inline std::vector<Floats> room_like(const Adam& adam) {
    std::vector<Floats> room;
    for (size_t i = 0; i < adam.size(); ++i) room.emplace_back(adam.parameter(i).count);
    return room;
}

// Adds what the second thread found.
inline void add_gradients(Adam& adam, const std::vector<Floats>& others, const Kernels& kernels) {
    for (size_t i = 0; i < adam.size(); ++i) {
        kernels.add(adam.gradient(i), others[i].data(), others[i].size());
    }
}

// What the gradient is multiplied by so that it is no longer than `longest`; 0: any length will do.
inline double shortening(double norm, double longest) {
    return longest > 0 ? std::min(1.0, longest / (norm + 1e-6)) : 1.0;
}

// Where the gradient of a layer is put: laid out as its weight and its bias are.
struct LayerGradient {
    float* weight;
    float* bias;
};

// A perceptron with room for a forward and a backward pass over a block of samples. One thread at a
// time works in it; several of them may share the weights.
class Trainable {
  public:
    // Without places for gradients there is only backward_to_inputs().
    explicit Trainable(const Perceptron& network, std::vector<LayerGradient> gradients = {})
        : network_(network),
          gradients_(std::move(gradients)),
          room_(network.activations()),
          rows_(block_rows * padded(network.inputs())) {
        ptrdiff_t widest = 0;
        for (const Layer& layer : network.layers()) {
            widest = std::max({widest, layer.inputs, layer.outputs});
        }
        delta_ = Floats(widest * block_rows);
        next_delta_ = Floats(widest * block_rows);
        transposed_ = Floats(block_rows * padded(widest));
    }

    const Perceptron& network() const { return network_; }
    const Kernels& kernels() const { return network_.kernels(); }
    // How far apart the rows of inputs() are.
    ptrdiff_t row() const { return padded(network_.inputs()); }
    // Where up to block_rows rows of inputs are put before forward(): [count][row()].
    float* inputs() { return rows_.data(); }
    float* outputs() { return room_.outputs(); }
    // d loss / d outputs, [outputs][padded(count)] with 0 in the padding, before backward(); after
    // backward_to_inputs() it is d loss / d inputs.
    float* delta() { return delta_.data(); }

    // outputs() [outputs][padded(count)] of the first `count` rows of inputs().
    void forward(ptrdiff_t count) {
        count_ = count;
        width_ = padded(count);
        kernels().transpose(rows_.data(), row(), count, network_.inputs(), room_.layer(0), width_);
        Perceptron::clear_padding(room_.layer(0), network_.inputs(), count);
        network_.forward_block(room_, width_);
    }

    // The gradient of this block, from delta(); added to that of the blocks before unless it is the
    // first.
    void backward(bool first) {
        for (size_t i = network_.layers().size(); i-- > 0;) {
            layer_gradient(i, first);
            if (i > 0) back_through(i);
        }
    }

    // d loss / d inputs, from delta() to delta(); no gradient of the parameters.
    void backward_to_inputs() {
        for (size_t i = network_.layers().size(); i-- > 0;) back_through(i);
    }

  private:
    void layer_gradient(size_t index, bool first) {
        const Layer& layer = network_.layers()[index];
        const LayerGradient& to = gradients_[index];
        kernels().row_sums(delta_.data(), width_, layer.outputs, width_, to.bias, !first);
        // weight[outputs][inputs] = delta[outputs][samples] * inputs[samples][inputs], or the other
        // way round. The second factor's rows are samples.
        const float* inputs = room_.layer(index);
        const ptrdiff_t rows = layer.turned ? layer.inputs : layer.outputs;
        const ptrdiff_t columns = layer.turned ? layer.outputs : layer.inputs;
        const float* second = rows_.data();
        ptrdiff_t second_row = row();
        if (layer.turned || index > 0) {
            second = transposed_.data();
            second_row = padded(columns);
            kernels().transpose(layer.turned ? delta_.data() : inputs, width_, columns, count_,
                                transposed_.data(), second_row);
        }
        kernels().multiply({.a = layer.turned ? inputs : delta_.data(),
                            .a_row = width_,
                            .a_column = 1,
                            .b = second,
                            .b_row = second_row,
                            .c = to.weight,
                            .c_row = columns,
                            .rows = rows,
                            .columns = columns,
                            .depth = count_,
                            .accumulate = !first});
    }

    void back_through(size_t index) {
        const Layer& layer = network_.layers()[index];
        kernels().multiply({.a = layer.weight,
                            .a_row = layer.input_step(),
                            .a_column = layer.output_step(),
                            .b = delta_.data(),
                            .b_row = width_,
                            .c = next_delta_.data(),
                            .c_row = width_,
                            .rows = layer.inputs,
                            .columns = width_,
                            .depth = layer.outputs});
        if (index > 0) {
            (network_.activation() == Activation::tanh ? kernels().tanh_slope
                                                       : kernels().relu_slope)(
                next_delta_.data(), room_.layer(index), layer.inputs * width_);
        }
        std::swap(delta_, next_delta_);
    }

    Perceptron network_;
    std::vector<LayerGradient> gradients_;
    Activations room_;
    Floats rows_, delta_, next_delta_, transposed_;
    ptrdiff_t count_ = 0, width_ = 0;
};

// The places in an optimiser's gradient for weight and bias of the first `layers` layers.
inline std::vector<LayerGradient> gradients_of(Adam& adam, size_t layers) {
    std::vector<LayerGradient> places;
    for (size_t i = 0; i < layers; ++i)
        places.push_back({adam.gradient(2 * i), adam.gradient(2 * i + 1)});
    return places;
}

// The same in room of one's own.
inline std::vector<LayerGradient> gradients_in(std::vector<Floats>& room, size_t layers) {
    std::vector<LayerGradient> places;
    for (size_t i = 0; i < layers; ++i)
        places.push_back({room[2 * i].data(), room[2 * i + 1].data()});
    return places;
}

}  // namespace envfleet::learner
