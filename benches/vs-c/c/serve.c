/* The passive side: accepts all connections, with a QP if requested, and sends back what it receives. Ends after
 * `count` connections for each part; 0: never. */
#include "versus.h"

#include <sys/epoll.h>

/* Marks the work requests that send. */
enum { SENDS = 1 << 16 };

struct passive {
	struct rdma_event_channel *channel;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	int epoll;
	/* The buffer for receives and echoes, divided into slots; used by one connection at a time. */
	struct ibv_mr *mr;
	char buffer[DEPTH * BYTES];
	struct ibv_qp *echo;
	uint32_t qp_num;
	int ended;
};

static void watch(struct passive *passive, int fd)
{
	struct epoll_event interest = { .events = EPOLLIN, .data.fd = fd };

	CHECK(epoll_ctl(passive->epoll, EPOLL_CTL_ADD, fd, &interest));
}

static void post_recv(struct passive *passive, struct ibv_qp *qp, int at)
{
	struct ibv_sge sge = { (uintptr_t)passive->buffer + at * BYTES, BYTES, passive->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(qp, &wr, &bad));
}

static void post_send(struct passive *passive, struct ibv_qp *qp, int at)
{
	struct ibv_sge sge = { (uintptr_t)passive->buffer + at * BYTES, BYTES, passive->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = at | SENDS,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	CHECK(ibv_post_send(qp, &wr, &bad));
}

/* Sends back received messages. Posts a slot's receive again when its send has completed. */
static void complete(struct passive *passive)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	if (ibv_get_cq_event(passive->completions, &cq, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_req_notify_cq(cq, 0));
	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		/* A completion of a QP that does not echo, or that is destroyed. */
		if (!passive->echo || wc.qp_num != passive->echo->qp_num || wc.status == IBV_WC_WR_FLUSH_ERR)
			continue;
		CHECK(wc.status);
		if (wc.wr_id & SENDS)
			post_recv(passive, passive->echo, wc.wr_id & ~SENDS);
		else
			post_send(passive, passive->echo, wc.wr_id);
	}
}

static void create_qp(struct passive *passive, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	if (!passive->pd) {
		passive->pd = ibv_alloc_pd(id->verbs);
		CHECK(!passive->pd);
		passive->completions = ibv_create_comp_channel(id->verbs);
		CHECK(!passive->completions);
		set_nonblocking(passive->completions->fd);
		passive->cq = ibv_create_cq(id->verbs, 16 * DEPTH, NULL, passive->completions, 0);
		CHECK(!passive->cq);
		passive->mr = ibv_reg_mr(passive->pd, passive->buffer, sizeof(passive->buffer),
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		CHECK(!passive->mr);
		CHECK(ibv_req_notify_cq(passive->cq, 0));
		watch(passive, passive->completions->fd);
	}
	attr.send_cq = attr.recv_cq = passive->cq;
	CHECK(rdma_create_qp(id, passive->pd, &attr));
}

static void accept_from(struct passive *passive, struct rdma_cm_id *id, const struct hello *theirs)
{
	struct hello hello = { .with_qp = theirs->with_qp };
	struct rdma_conn_param param = parameters(&hello);

	if (hello.with_qp == 0) {
		param.qp_num = ++passive->qp_num;
	} else {
		create_qp(passive, id);
		hello.addr = (uintptr_t)passive->buffer;
		hello.rkey = passive->mr->rkey;
	}
	if (hello.with_qp == 2) {
		passive->echo = id->qp;
		for (int at = 0; at < DEPTH; at++)
			post_recv(passive, id->qp, at);
	}
	CHECK(rdma_accept(id, &param));
}

static void handle(struct passive *passive, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type what = event->event;
	int status = event->status;
	struct hello theirs = { 0 };

	if (what == RDMA_CM_EVENT_CONNECT_REQUEST)
		memcpy(&theirs, event->param.conn.private_data, sizeof(theirs));
	CHECK(rdma_ack_cm_event(event));
	switch (what) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		accept_from(passive, id, &theirs);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		CHECK(rdma_disconnect(id));
		if (id->qp) {
			if (id->qp == passive->echo)
				passive->echo = NULL;
			rdma_destroy_qp(id);
		}
		CHECK(rdma_destroy_id(id));
		passive->ended++;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		fprintf(stderr, "%s with status %d\n", rdma_event_str(what), status);
		exit(1);
	}
}

static void wait_and_handle(struct passive *passive)
{
	struct epoll_event reports[64];
	struct rdma_cm_event *event;
	int reported = epoll_wait(passive->epoll, reports, 64, -1);

	CHECK(reported < 0 && errno != EINTR);
	for (int i = 0; i < reported; i++) {
		if (reports[i].data.fd != passive->channel->fd) {
			complete(passive);
			continue;
		}
		while (!rdma_get_cm_event(passive->channel, &event))
			handle(passive, event);
		CHECK(errno != EAGAIN);
	}
}

void serve(const char *host, const char *port, int count)
{
	static struct passive passive;
	struct sockaddr_in at = address(host, port);
	struct rdma_cm_id *listener;

	passive.qp_num = 0x20000;
	passive.channel = open_channel();
	passive.epoll = epoll_create1(EPOLL_CLOEXEC);
	CHECK(passive.epoll < 0);
	watch(&passive, passive.channel->fd);
	CHECK(rdma_create_id(passive.channel, &listener, NULL, RDMA_PS_TCP));
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&at));
	CHECK(rdma_listen(listener, 1024));
	for (int i = 0, end = parts(); i < end; i++) {
		if (i)
			callgrind_mark();
		while (count == 0 || passive.ended < (i + 1) * count)
			wait_and_handle(&passive);
	}
	callgrind_mark();
}
