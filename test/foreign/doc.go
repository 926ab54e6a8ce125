// Package foreign generates what other programs put on a host: rules of nftables and
// iptables, links, routes and settings. The same seed gives the same commands. It knows
// nothing of Fairlead, except for the names that its objects have in other families.
//
// A command that this kernel or this version of a tool refuses has no effect: Set.Apply
// reports which ones the host accepted.
//
// The tests run every command of fairlead that reads or changes the host beside them, those
// of clusters with a real etcd. Left out are: completion, help, lab agent, lab compare, lab
// history, lab record and lab report, which use no host; lab run, whose hosts are namespaces of its
// own; daemons that a command starts in the background, which test/e2e tests; network check
// and cluster accept, which need a peer that answers and an etcd that was restored; cluster
// address move and claim, which need several hosts, as in test/cluster.
package foreign
