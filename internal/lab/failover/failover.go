// Package failover measures what clients of a service notice when one of its real
// servers is killed, becomes silent, or is drained. It has real servers that
// answer with their names, a client that sends requests at a fixed rate, and the
// evaluation of the answers. It builds no path and balances nothing.
//
// # Theory of operation
//
//	client ── path ── balancer ──┬── real server a: killed, silenced, drained
//	 1,000 per second            ├── real server b
//	                             └── real server c
//
// Every request is a separate connection: a question, the server's name as the
// answer, and the end. Requests are sent at scheduled times, however long others
// take, so unanswered requests do not slow the rest down. Servers, client and
// balancer are separate processes in separate namespaces. A client keeps its
// requests in memory until it is asked to end, and evaluates nothing while it
// sends.
package failover

// The roles of the processes. CommandRole is the fairlead command line, which main
// dispatches; the others are in this package.
const (
	ServerRole  = "failover-server"
	ClientRole  = "failover-client"
	HostRole    = "failover-host"
	CommandRole = "command"
)
