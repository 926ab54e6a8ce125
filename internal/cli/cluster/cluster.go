// Package cluster has the commands for clusters of hosts.
package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/cluster/member"
	"fairlead/internal/frontend/admin"

	"github.com/spf13/cobra"
)

// New returns the command `fairlead cluster`.
func New(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Make several hosts one cluster",
	}
	c.AddCommand(newInit(a), newJoin(a), newToken(a), newStatus(a), newDrain(a), newRemove(a), newLeave(a),
		newAccept(a), newEtcd(a), newReaddress(a), newTakeover(a), newAddress(a), newBGP(a))
	return c
}

// nodeFlags are the flags about this host as a node.
type nodeFlags struct {
	addresses []string
	node      api.ClusterNode
}

func (n *nodeFlags) flags(c *cobra.Command) {
	c.Flags().StringSliceVar(&n.addresses, "address", nil, "address by which the other hosts reach this one, at most "+
		"one per family;\nif not given, the address of this host towards etcd or towards the node of the token")
	c.Flags().StringVar(&n.node.Node, "node-name", "", "name of this node; if not given, the name of the host")
	c.Flags().Uint16Var(&n.node.Port, "port", member.Port, "TCP port of the API for other nodes")
}

func (n *nodeFlags) parse() (api.ClusterNode, error) {
	var err error
	n.node.Addresses, err = parseAddresses("--address", n.addresses)
	return n.node, err
}

// parseAddresses parses the addresses of a node.
func parseAddresses(what string, texts []string) (all []netip.Addr, err error) {
	for _, text := range texts {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, command.Usage(fmt.Errorf("%s %q: want an IP address", what, text))
		}
		all = append(all, addr)
	}
	return all, nil
}

// etcdFlags are the flags about access to etcd.
type etcdFlags struct {
	access                          api.EtcdAccess
	ca, certificate, key, passwords string
}

func (e *etcdFlags) flags(c *cobra.Command) {
	c.Flags().StringSliceVar(&e.access.Endpoints, "etcd", nil, "URLs of etcd's servers, separated by commas")
	c.Flags().StringVar(&e.ca, "etcd-ca", "", "file with the certificates of the CAs that may have signed those of "+
		"etcd; if not given, those of the host")
	c.Flags().StringVar(&e.certificate, "etcd-cert", "", "file with the client's certificate for etcd")
	c.Flags().StringVar(&e.key, "etcd-key", "", "file with the key of --etcd-cert")
	c.Flags().StringVar(&e.access.User, "etcd-user", "", "user of etcd; also --etcd-password-file")
	c.Flags().StringVar(&e.passwords, "etcd-password-file", "", "file with the password of --etcd-user")
	_ = c.MarkFlagRequired("etcd") // it exists
}

// parse reads the files of the flags.
func (e *etcdFlags) parse() (api.EtcdAccess, error) {
	var password string
	for path, into := range map[*string]*string{&e.ca: &e.access.CA, &e.certificate: &e.access.Certificate,
		&e.key: &e.access.Key, &e.passwords: &password} {
		if *path == "" {
			continue
		}
		text, err := os.ReadFile(*path)
		if err != nil {
			return e.access, command.Usage(fmt.Errorf("read the access to etcd: %w", err))
		}
		*into = string(text)
	}
	e.access.Password = strings.TrimRight(password, "\r\n")
	return e.access, nil
}

func newInit(a *command.App) *cobra.Command {
	var n nodeFlags
	var e etcdFlags
	var name string
	c, _ := newChange(a, &cobra.Command{
		Use:   "init --etcd URL,…",
		Short: "Create a cluster, with this host as its first node",
		Long: "Create a cluster in an etcd (version 3) that you run. This host becomes its first node; its\n" +
			"networks, containers and services do not change. The other nodes get the access to etcd from\n" +
			"the node at which they join.\n\n" +
			"The command can be repeated after an error.",
		Example: "  fairlead cluster init --etcd https://192.0.2.7:2379 --etcd-ca ca.pem --etcd-cert client.pem " +
			"--etcd-key client-key.pem\n  fairlead cluster init --etcd http://192.0.2.7:2379,http://192.0.2.8:2379 " +
			"--address 192.0.2.1",
		Args: command.Arguments(cobra.NoArgs),
	}, admin.InitCluster, func(*cobra.Command, []string) (api.ClusterInit, error) {
		node, err := n.parse()
		if err != nil {
			return api.ClusterInit{}, err
		}
		access, err := e.parse()
		return api.ClusterInit{Name: name, Etcd: access, ClusterNode: node}, err
	})
	n.flags(c)
	e.flags(c)
	c.Flags().StringVar(&name, "name", "default", "name of the cluster in etcd, below /fairlead/v1/")
	return c
}

func newJoin(a *command.App) *cobra.Command {
	var n nodeFlags
	var file string
	c, _ := newChange(a, &cobra.Command{
		Use:   "join [TOKEN]",
		Short: "Make this host a node of a cluster",
		Long: "Make this host a node of the cluster that has created the token (`fairlead cluster token\n" +
			"create` on any node). The host verifies the cluster with the token before it sends the token's\n" +
			"secret. Its networks, containers and services do not change.\n\n" +
			"The command can be repeated with the same token after an error.\n\n" +
			"Other users of this host see arguments (`ps`). They do not see a token from a file, from standard\n" +
			"input (`--token-file -`) or in " + joinToken + ".",
		Example: "  fairlead cluster join fljoin1.… --address 192.0.2.2\n" +
			"  ssh node1 fairlead cluster token create | fairlead cluster join --token-file -",
		Args:              command.Arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, admin.JoinCluster, func(c *cobra.Command, args []string) (api.ClusterJoin, error) {
		node, err := n.parse()
		if err != nil {
			return api.ClusterJoin{}, err
		}
		token, err := tokenOf(args, file, c.InOrStdin())
		if err != nil {
			return api.ClusterJoin{}, command.Usage(err)
		}
		return api.ClusterJoin{Token: token, ClusterNode: node}, nil
	})
	n.flags(c)
	c.Flags().StringVar(&file, "token-file", "", "`file` with the token; - is standard input")
	return c
}

// newChange completes a command that makes one call: request returns its request.
func newChange[Request any](a *command.App, c *cobra.Command, call admin.Call[Request, api.Result],
	request func(c *cobra.Command, args []string) (Request, error)) (*cobra.Command, *command.Remote) {
	r := &command.Remote{App: a}
	c.RunE = func(c *cobra.Command, args []string) error {
		what, err := request(c, args)
		if err != nil {
			return err
		}
		return command.Do(c.Context(), r, call, what, r.Printing(nil))
	}
	r.Flags(c)
	return c, r
}

// newQuery completes a command without arguments that prints the answer to a query.
func newQuery[Answer any](a *command.App, c *cobra.Command, query admin.Query[Answer],
	show func(*command.Remote, Answer) error) *cobra.Command {
	r := &command.Remote{App: a}
	c.Args = command.Arguments(cobra.NoArgs)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return command.Show(c.Context(), r, query.Do, func(answer Answer) error { return show(r, answer) }, nil)
	}
	r.Flags(c)
	return c
}

// newList is newQuery for rows of a table.
func newList[Answer any](a *command.App, c *cobra.Command, query admin.Query[Answer],
	rows func(Answer) [][]string) *cobra.Command {
	return newQuery(a, c, query, func(r *command.Remote, answer Answer) error {
		if r.Output == "json" {
			return r.JSON(answer)
		}
		return r.Tabled(rows(answer))
	})
}

// completeNodes completes the first argument with the names of nodes.
func completeNodes(r *command.Remote) cobra.CompletionFunc {
	return command.CompleteFirst(r, func(ctx context.Context, c *admin.Client) ([]api.ClusterNodeStatus, error) {
		s, err := admin.ShowCluster.Do(ctx, c)
		return s.Nodes, err
	}, func(n api.ClusterNodeStatus) string { return n.Name })
}
