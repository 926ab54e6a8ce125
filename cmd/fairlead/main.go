// Command fairlead contains the command line, the daemon, the Docker driver,
// the load balancer, the userspace proxy and the laboratory in one binary.
package main

import (
	"os"

	"fairlead/internal/child"
	"fairlead/internal/cli"
	"fairlead/internal/frontend/dashboard/atgateway"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/lab/agent"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/startup"
	"fairlead/internal/lab/visitor"
	"fairlead/internal/lab/website"
	"fairlead/internal/proxy"
)

// version and commit are set when the binary is linked.
var version, commit = "devel", "unknown"

func main() {
	build := cli.Build{Version: version, Commit: commit}
	run := func() int { return cli.Main(build, cli.Arguments(os.Args), os.Stdout, os.Stderr) }
	child.Dispatch(child.Roles{
		proxy.Role: proxy.Main, serving.Role: serving.MainWith(atgateway.New(version)), load.Role: load.Main,
		website.Role: website.Main, visitor.Role: visitor.Main,
		startup.AnswerRole: startup.AnswerMain, startup.AskRole: startup.AskMain,
		failover.ServerRole: failover.ServerMain, failover.ClientRole: failover.ClientMain,
		agent.SweeperRole: agent.SweeperMain, failover.HostRole: failover.HostMain, failover.CommandRole: run,
	})
	os.Exit(run())
}
