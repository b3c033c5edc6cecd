#include "scratch.h"

#include <cstdlib>
#include <new>
#include <vector>

namespace dragoman {
namespace {

// One block that is large enough for most calls, and more where a call asks for more. After such a call they become
// one.
struct Store {
  std::vector<char*> blocks;
  size_t size = 0, used = 0, wanted = 0;

  ~Store() { clear(); }
  void clear() {
    for (char* block : blocks) std::free(block);
    blocks.clear();
    size = used = 0;
  }
  void grow(size_t least) {
    const size_t next = (least + 65535) / 65536 * 65536;
    char* block = (char*)std::aligned_alloc(64, next);
    if (block == nullptr) throw std::bad_alloc();
    blocks.push_back(block);
    size = next;
    used = 0;
  }
};

thread_local Store store;

}  // namespace

Scratch::Scratch() { store.used = store.wanted = 0; }

Scratch::~Scratch() {
  if (store.blocks.size() < 2) return;
  const size_t all = store.wanted;
  store.clear();
  try {
    store.grow(all);
  } catch (const std::bad_alloc&) {  // the next call asks again
  }
}

void* Scratch::bytes(size_t count) {
  const size_t rounded = (count + 63) / 64 * 64;
  store.wanted += rounded;
  if (store.used + rounded > store.size) store.grow(rounded);
  void* taken = store.blocks.back() + store.used;
  store.used += rounded;
  return taken;
}

}  // namespace dragoman
