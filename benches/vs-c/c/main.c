#include "versus.h"

#include <arpa/inet.h>
#include <fcntl.h>

/* Whether the job is work on one connection: write, write-batch, send, each also with -extended; send-srq. */
static int run_work(const char *host, const char *port, const char *job)
{
	static const struct {
		const char *name;
		struct work work;
	} works[] = {
		{ "write", { 0 } },
		{ "write-batch", { .in_one_call = 1 } },
		{ "write-extended", { .extended = 1 } },
		{ "write-batch-extended", { .in_one_call = 1, .extended = 1 } },
		{ "send", { .sends = 1 } },
		{ "send-extended", { .sends = 1, .extended = 1 } },
		{ "send-srq", { .sends = 1, .shared = 1 } },
	};
	const char *colon = strchr(job, ':');
	size_t length = colon ? (size_t)(colon - job) : 0;

	for (size_t i = 0; colon && i < sizeof(works) / sizeof(*works); i++) {
		if (strlen(works[i].name) == length && !memcmp(works[i].name, job, length)) {
			work(host, port, works[i].work, atoi(colon + 1));
			return 1;
		}
	}
	return 0;
}

static void run(const char *host, const char *port, const char *job)
{
	int number, count;

	if (sscanf(job, "serve:%d", &count) == 1)
		serve(host, port, count);
	else if (sscanf(job, "qp-%d:%d", &number, &count) == 2)
		connections(host, port, 1, number, count);
	else if (sscanf(job, "bare-%d:%d", &number, &count) == 2)
		connections(host, port, 0, number, count);
	else if (run_work(host, port, job))
		return;
	else if (sscanf(job, "messages:%d", &count) == 1)
		messages(host, port, count);
	else {
		fprintf(stderr, "what is %s?\n", job);
		exit(2);
	}
}

/* versus-c ADDRESS PORT JOB...: serve:COUNT, qp-AT-ONCE:COUNT, bare-AT-ONCE:COUNT, messages:COUNT, and the jobs of
 * `run_work`. */
int main(int argc, char **argv)
{
	for (int job = 3; job < argc; job++)
		run(argv[1], argv[2], argv[job]);
	return 0;
}

int parts(void)
{
	const char *given = getenv("VERSUS_PARTS");

	return given ? atoi(given) : 4;
}

void __attribute__((noinline)) callgrind_mark(void)
{
	__asm__ volatile("");
}

struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	CHECK(inet_pton(AF_INET, host, &address.sin_addr) != 1);
	return address;
}

struct rdma_event_channel *open_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	CHECK(!channel);
	set_nonblocking(channel->fd);
	return channel;
}

void set_nonblocking(int fd)
{
	CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

struct rdma_conn_param parameters(const struct hello *hello)
{
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(*hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return param;
}
