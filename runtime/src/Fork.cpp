#include "Fork.h"

#include <pthread.h>

using namespace attn::rt;

// Guards the list of hooks, too.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static ForkHook *first = nullptr;

void ForkHook::beforeFork() { pthread_mutex_lock(&lock); }

void ForkHook::inParent() { pthread_mutex_unlock(&lock); }

void ForkHook::inChild() {
  for (ForkHook *hook = first; hook; hook = hook->next)
    hook->openLocks(hook->owner);
  pthread_mutex_unlock(&lock);
}

void ForkHook::install() { pthread_atfork(beforeFork, inParent, inChild); }

ForkHook::ForkHook(void (*openLocks)(void *), void *owner) : openLocks(openLocks), owner(owner) {
  pthread_once(&once, install);
  ForkGuard guard;
  next = first;
  if (next)
    next->previous = this;
  first = this;
}

ForkHook::~ForkHook() {
  ForkGuard guard;
  (previous ? previous->next : first) = next;
  if (next)
    next->previous = previous;
}

ForkGuard::ForkGuard() { pthread_mutex_lock(&lock); }

ForkGuard::~ForkGuard() { pthread_mutex_unlock(&lock); }
