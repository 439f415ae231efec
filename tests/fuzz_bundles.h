// Random bundles of random columns, as the library reads them.

#ifndef JBOOST_TESTS_FUZZ_BUNDLES_H_
#define JBOOST_TESTS_FUZZ_BUNDLES_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "_tree/bundles.h"
#include "fuzz.h"

// Features of up to 256 codes each in columns of up to 256 joint codes, some columns for one feature alone.
struct RandomBundles {
  int64_t n, n_codes, width = draw(1, jboost::kGroup);
  std::vector<std::vector<int64_t>> members;
  std::vector<std::vector<int64_t>> joint;  // of each column, by row
  Array<uint8_t> codes, code, order;
  Array<int32_t> column, n_joint, n_unusual;

  // code_of(feature, row) gives the features' own codes.
  template <typename Code>
  RandomBundles(int64_t n, int64_t f, int64_t n_codes, const Code& code_of)
      : n(n), n_codes(n_codes), code(f * 256), order(f * 256), column(f), n_unusual(f) {
    std::vector<int64_t> sizes;
    for (int64_t feature = 0; feature < f; ++feature) {
      const bool is_new = members.empty() || draw(0, 3) == 0 || !join(feature, sizes, code_of);
      if (!is_new) continue;
      members.push_back({feature});
      joint.emplace_back(n);
      for (int64_t row = 0; row < n; ++row) joint.back()[row] = code_of(feature, row);
      sizes.push_back(n_codes);
      for (int64_t i = 0; i < n_codes; ++i) code[feature * 256 + i] = static_cast<uint8_t>(i);
    }
    lay_out(sizes);
    for (int64_t feature = 0; feature < f; ++feature) put_in_order(feature, sizes);
  }

  jboost::Bundles get() {
    jboost::Bundles result;
    result.column = column.get();
    result.code = code.get();
    result.n_joint = n_joint.get();
    result.order = order.get();
    result.n_unusual = n_unusual.get();
    result.n_features = column.size;
    result.n_columns = n_joint.size;
    return result;
  }

 private:
  // Adds a feature to the last column, unless joint codes would be too many.
  template <typename Code>
  bool join(int64_t feature, std::vector<int64_t>& sizes, const Code& code_of) {
    std::map<std::pair<int64_t, int64_t>, int64_t> numbers;
    for (int64_t row = 0; row < n; ++row) numbers[{joint.back()[row], code_of(feature, row)}] = 0;
    if (numbers.size() > 256) return false;
    Array<uint8_t> before = Array<uint8_t>(code.size);
    std::copy_n(code.get(), code.size, before.get());
    int64_t next = 0;
    for (auto& [pair, number] : numbers) {
      number = next++;
      for (int64_t other : members.back()) code[other * 256 + number] = before[other * 256 + pair.first];
      code[feature * 256 + number] = static_cast<uint8_t>(pair.second);
    }
    for (int64_t row = 0; row < n; ++row) joint.back()[row] = numbers[{joint.back()[row], code_of(feature, row)}];
    members.back().push_back(feature);
    sizes.back() = next;
    return true;
  }
  void lay_out(const std::vector<int64_t>& sizes) {
    const int64_t m = static_cast<int64_t>(sizes.size()), groups = (m + width - 1) / width;
    codes = Array<uint8_t>(groups * n * width);
    n_joint = Array<int32_t>(groups * width);
    for (int64_t place = 0; place < m; ++place) {
      n_joint[place] = static_cast<int32_t>(sizes[place]);
      for (int64_t feature : members[place]) column[feature] = static_cast<int32_t>(place);
      for (int64_t row = 0; row < n; ++row)
        codes[(place / width * n + row) * width + place % width] = static_cast<uint8_t>(joint[place][row]);
    }
  }
  void put_in_order(int64_t feature, const std::vector<int64_t>& sizes) {
    const int64_t size = sizes[column[feature]];
    const uint8_t* own = code.get() + feature * 256;
    const uint8_t usual = own[draw(0, size - 1)];  // any will do
    std::vector<uint8_t> sorted(size);
    for (int64_t i = 0; i < size; ++i) sorted[i] = static_cast<uint8_t>(i);
    std::stable_sort(sorted.begin(), sorted.end(), [&](uint8_t a, uint8_t b) {
      return std::make_pair(own[a] == usual, own[a]) < std::make_pair(own[b] == usual, own[b]);
    });
    std::copy(sorted.begin(), sorted.end(), order.get() + feature * 256);
    n_unusual[feature] = static_cast<int32_t>(std::count_if(sorted.begin(), sorted.end(), [&](uint8_t i) { return own[i] != usual; }));
  }
};

#endif  // JBOOST_TESTS_FUZZ_BUNDLES_H_
