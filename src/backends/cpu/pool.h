/* pool.h -- a device's threads. A job is a number of tasks; which thread runs which task is left to chance, so a task's
 * work and result must depend on its number alone.                                                                  */
#ifndef AMBI_POOL_H
#define AMBI_POOL_H
#include <stdbool.h>
#include <stdint.h>

typedef struct pool pool;
typedef void task_fn(void *context, int64_t task);

pool *pool_create(int threads); /* NULL: no memory, or no threads to be had */
void pool_destroy(pool *p);
int pool_threads(const pool *p);

/* fn(context, 0 .. tasks-1), each once; returns when all are done. From a task, while another caller is using the pool,
 * or in a child of fork(), the tasks simply run in the calling thread.                                              */
void pool_run(pool *p, int64_t tasks, task_fn *fn, void *context);

#endif
