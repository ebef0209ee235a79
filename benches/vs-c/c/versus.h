/* Common to the C programs. They are plain programs on librdmacm and libibverbs: no abstraction, no deadlines, every
 * failure ends the program. */
#ifndef VERSUS_H
#define VERSUS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if a call has failed. */
#define CHECK(call) \
	do { \
		if (call) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

/* The private data of a request and of its answer; the same as in src/wire.rs. */
struct hello {
	uint64_t addr;
	uint32_t rkey;
	/* 1: with a QP on both sides. */
	uint32_t with_qp;
};

enum { RESOLVE_MS = 10000, DEPTH = 64, BYTES = 64 };

struct sockaddr_in address(const char *host, const char *port);
struct rdma_event_channel *open_channel(void);
void set_nonblocking(int fd);
struct rdma_conn_param parameters(const struct hello *hello);

/* A connection with a QP and a registered buffer, for measurements on one connection. */
struct connection {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	/* With extended calls. */
	struct ibv_qp_ex *qp_ex;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	/* With a shared receive queue. */
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct hello peer;
	char buffer[2 * BYTES];
};

void connection_open(struct connection *connection, const char *host, const char *port, int extended, int shared);
void connection_close(struct connection *connection);

/* callgrind dumps its counts when this is called: before each part of a job, and at its end. */
void callgrind_mark(void);

/* The number of equal parts of a job: VERSUS_PARTS, or 4. The first is for warming up. */
int parts(void);
void serve(const char *host, const char *port, int count);
void connections(const char *host, const char *port, int with_qp, int at_once, int count);
/* What `work` posts, and how. */
struct work {
	/* Receives and sends; otherwise writes. */
	int sends;
	/* Writes with one doorbell, and one poll. */
	int in_one_call;
	/* By the calls of ibv_wr_post(3). */
	int extended;
	/* Receives from a shared receive queue. */
	int shared;
};

void work(const char *host, const char *port, struct work work, int batches);
void messages(const char *host, const char *port, int count);

#endif
