/* The active side: makes and ends connections, a given number at once, in one thread that blocks in epoll_wait. */
#include "versus.h"

#include <sys/epoll.h>

struct active {
	struct rdma_event_channel *channel;
	struct sockaddr_in to;
	int with_qp;
	int to_begin;
	int to_end;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	/* The QP numbers to send without QPs. */
	uint32_t qp_num;
};

static void begin(struct active *active)
{
	struct rdma_cm_id *id;

	if (!active->to_begin)
		return;
	active->to_begin--;
	CHECK(rdma_create_id(active->channel, &id, NULL, RDMA_PS_TCP));
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&active->to, RESOLVE_MS));
}

static void create_qp(struct active *active, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	if (!active->pd) {
		active->pd = ibv_alloc_pd(id->verbs);
		CHECK(!active->pd);
		active->cq = ibv_create_cq(id->verbs, DEPTH, NULL, NULL, 0);
		CHECK(!active->cq);
	}
	attr.send_cq = attr.recv_cq = active->cq;
	CHECK(rdma_create_qp(id, active->pd, &attr));
}

static void connect_to(struct active *active, struct rdma_cm_id *id)
{
	struct hello hello = { .with_qp = active->with_qp };
	struct rdma_conn_param param = parameters(&hello);

	if (active->with_qp)
		create_qp(active, id);
	else
		param.qp_num = ++active->qp_num;
	CHECK(rdma_connect(id, &param));
}

static void end(struct active *active, struct rdma_cm_id *id)
{
	if (active->with_qp)
		rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id));
	active->to_end--;
	begin(active);
}

static void handle(struct active *active, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type what = event->event;
	int status = event->status;

	CHECK(rdma_ack_cm_event(event));
	switch (what) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		CHECK(rdma_resolve_route(id, RESOLVE_MS));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		connect_to(active, id);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		CHECK(rdma_establish(id));
		CHECK(rdma_disconnect(id));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		CHECK(rdma_disconnect(id));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		end(active, id);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		fprintf(stderr, "%s with status %d\n", rdma_event_str(what), status);
		exit(1);
	}
}

static void part(struct active *active, int epoll, int at_once, int count)
{
	active->to_begin = active->to_end = count;
	while (at_once--)
		begin(active);
	while (active->to_end) {
		struct epoll_event reports[64];
		struct rdma_cm_event *event;

		if (epoll_wait(epoll, reports, 64, -1) < 0) {
			CHECK(errno != EINTR);
			continue;
		}
		while (!rdma_get_cm_event(active->channel, &event))
			handle(active, event);
		CHECK(errno != EAGAIN);
	}
}

void connections(const char *host, const char *port, int with_qp, int at_once, int count)
{
	struct active active = {
		.channel = open_channel(),
		.to = address(host, port),
		.with_qp = with_qp,
		.qp_num = 0x10000,
	};
	struct epoll_event interest = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	CHECK(epoll < 0);
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, active.channel->fd, &interest));
	for (int i = 0, end = parts(); i < end; i++) {
		if (i)
			callgrind_mark();
		part(&active, epoll, at_once, count);
	}
	callgrind_mark();
	rdma_destroy_event_channel(active.channel);
}
