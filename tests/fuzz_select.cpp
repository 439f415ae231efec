// Random selections of _fixed_point/select.h: the same for every number of threads, and what sorting gives. By hand, in the
// folder of the tests: g++ -std=c++17 -pthread -I ../jboost fuzz_select.cpp && ./a.out

#include "_fixed_point/select.h"

#include "fuzz.h"

namespace {

template <typename Key, typename Mass>
struct Case {
  int64_t n, n_groups;
  bool is_grouped;
  Array<Key> key;
  Array<Mass> mass;
  Array<int32_t> group;
  std::vector<int64_t> ranks;

  Case(int64_t n, int64_t n_groups)
      : n(n), n_groups(n_groups), is_grouped(n_groups > 1 || draw(0, 1)), key(n), mass(n), group(n), ranks(n_groups) {
    const int64_t shift = draw(0, 8 * sizeof(Key) - 1), most = sizeof(Mass) == 1 ? 1 : draw(0, 9);
    for (int64_t i = 0; i < n; ++i) {
      key[i] = static_cast<Key>(static_cast<uint64_t>(draw(INT64_MIN, INT64_MAX))) >> (draw(0, 3) ? shift : 0);
      mass[i] = static_cast<Mass>(draw(0, most));
      group[i] = static_cast<int32_t>(draw(0, 9) ? draw(0, n_groups - 1) : draw(-2, n_groups + 2));
    }
    for (int64_t& rank : ranks) rank = draw(0, 1) ? draw(0, 9) : draw(1, 1 + n * std::max<int64_t>(most, 1) / n_groups);
  }

  Array<Key> select(int64_t n_threads) {
    Array<Key> found(n_groups);
    const jboost::Selection<Key, Mass> selection{key.get(), mass.get(), is_grouped ? group.get() : nullptr, n, n_groups};
    with_pool(n_threads, [&](const jboost::Pool& pool) { jboost::select(selection, pool, ranks, found.get()); });
    return found;
  }

  Key by_sorting(int64_t wanted) const {
    std::vector<std::pair<Key, int64_t>> rows;
    for (int64_t i = 0; i < n; ++i)
      if (!is_grouped || group[i] == wanted) rows.push_back({key[i], static_cast<int64_t>(mass[i])});
    std::sort(rows.begin(), rows.end());
    if (ranks[wanted] <= 0) return 0;
    int64_t upto = 0;
    for (const auto& [key, mass] : rows)
      if ((upto += mass) >= ranks[wanted]) return key;
    return 0;  // the rank is never reached
  }

  const char* mistake() {
    const Array<Key> alone = select(1);
    for (int64_t n_threads : {draw(2, 4), draw(5, 9)})
      if (!(select(n_threads) == alone)) return "another result of several threads";
    for (int64_t wanted = 0; wanted < n_groups; ++wanted)
      if (alone[wanted] != by_sorting(wanted)) return "another key than by sorting";
    return nullptr;
  }
};

const char* mistake_of(int64_t kind, int64_t n, int64_t n_groups) {
  if (kind == 0) return Case<uint32_t, bool>(n, n_groups).mistake();
  if (kind == 1) return Case<uint32_t, int32_t>(n, n_groups).mistake();
  return Case<uint64_t, int64_t>(n, n_groups).mistake();
}

}  // namespace

int main(int argc, char** argv) {
  for (int64_t i = 0, n_all = n_cases(argc, argv, 300); i < n_all; ++i) {
    const int64_t n = i % 40 == 39 ? draw(20000, 90000) : draw(0, draw(0, 1) ? 40 : 2000), kind = draw(0, 2);
    const int64_t n_groups = draw(0, 1) ? 1 : draw(1, draw(0, 9) ? 40 : 3000);
    if (const char* what = mistake_of(kind, n, n_groups)) {
      std::printf("%s: case %ld n=%ld groups=%ld kind %ld\n", what, long(i), long(n), long(n_groups), long(kind));
      return 1;
    }
  }
  std::puts("ok");
}
