package cluster

import (
	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

func newDrain(a *command.App) *cobra.Command {
	var undo bool
	c, r := newChange(a, &cobra.Command{
		Use:   "drain NODE",
		Short: "Take a node out of service, e.g. before a reboot",
		Long: "Drain a node: it holds no virtual address, its real servers get no new connections, and it\n" +
			"leases no new addresses. Its traffic continues.",
		Example: "  fairlead cluster drain host2\n  fairlead cluster drain host2 --undo",
		Args:    command.Arguments(cobra.ExactArgs(1)),
	}, admin.DrainNode, func(_ *cobra.Command, args []string) (api.ClusterNodeRequest, error) {
		return api.ClusterNodeRequest{Node: args[0], Undo: undo}, nil
	})
	c.ValidArgsFunction = completeNodes(r)
	c.Flags().BoolVar(&undo, "undo", false, "end the drain")
	return c
}

func newRemove(a *command.App) *cobra.Command {
	var force bool
	c, r := newChange(a, &cobra.Command{
		Use:   "rm NODE",
		Short: "Remove another node that does not come back",
		Long: "Remove another node with its address blocks, endpoints and real servers. The other nodes refuse\n" +
			"its certificate from then on. The host itself keeps the traffic that it has. To remove a host\n" +
			"that works, run `fairlead cluster leave` on it.\n\n" +
			"A removed node still knows the cluster's key and the access to etcd. If an attacker may have had\n" +
			"control of the node or its state directory, that is not enough: change the access to etcd, let\n" +
			"all nodes leave, and create a new cluster.",
		Example: "  fairlead cluster rm host2",
		Args:    command.Arguments(cobra.ExactArgs(1)),
	}, admin.RemoveNode, func(_ *cobra.Command, args []string) (api.ClusterNodeRequest, error) {
		return api.ClusterNodeRequest{Node: args[0], Force: force}, nil
	})
	c.ValidArgsFunction = completeNodes(r)
	c.Flags().BoolVar(&force, "force", false, "remove the node although it is alive: other nodes may get its "+
		"addresses while it uses them")
	return c
}

func newLeave(a *command.App) *cobra.Command {
	var force bool
	c, _ := newChange(a, &cobra.Command{
		Use:   "leave",
		Short: "End the membership of this host",
		Long: "End the membership of this host: delete its records in etcd, the networks and services of the\n" +
			"cluster on this host, and its keys. The host's own networks and services do not change. The\n" +
			"last node deletes the cluster.",
		Example: "  fairlead cluster leave",
		Args:    command.Arguments(cobra.NoArgs),
	}, admin.LeaveCluster, func(*cobra.Command, []string) (api.ClusterNodeRequest, error) {
		return api.ClusterNodeRequest{Force: force}, nil
	})
	c.Flags().BoolVar(&force, "force", false, "leave although attachments are removed, etcd does not answer, or the "+
		"last node deletes networks,\nservices and addresses")
	return c
}

func newEtcd(a *command.App) *cobra.Command {
	var e etcdFlags
	c, _ := newChange(a, &cobra.Command{
		Use:   "etcd --etcd URL,…",
		Short: "Change how this host reaches the cluster's etcd",
		Long: "Change how this host reaches the cluster's etcd: its servers, the client's certificate, or the user.\n" +
			"The flags replace the whole access, so give all of them. The host verifies that the new access\n" +
			"reaches its cluster before it stores and uses it; otherwise nothing changes. Traffic continues.\n\n" +
			"The other hosts keep their own access: run the command on each of them.",
		Example: "  fairlead cluster etcd --etcd https://192.0.2.7:2379,https://192.0.2.8:2379 --etcd-ca ca.pem " +
			"--etcd-cert client.pem --etcd-key client-key.pem\n" +
			"  fairlead cluster etcd --etcd http://192.0.2.7:2379 --etcd-user fairlead --etcd-password-file password",
		Args: command.Arguments(cobra.NoArgs),
	}, admin.SetEtcd, func(*cobra.Command, []string) (api.EtcdAccess, error) {
		return e.parse()
	})
	e.flags(c)
	return c
}

func newAccept(a *command.App) *cobra.Command {
	c, _ := newChange(a, &cobra.Command{
		Use:   "accept",
		Short: "Accept the records of an etcd that was restored",
		Long: "Accept the records of an etcd that was restored from a snapshot or created again. This node\n" +
			"changes nothing until then. `fairlead cluster status` shows whether it is frozen, and why.",
		Example: "  fairlead cluster status\n  fairlead cluster accept",
		Args:    command.Arguments(cobra.NoArgs),
	}, admin.AcceptCluster, func(*cobra.Command, []string) (struct{}, error) {
		return struct{}{}, nil
	})
	return c
}
