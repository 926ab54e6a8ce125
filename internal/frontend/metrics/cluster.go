package metrics

import (
	"context"
	"log/slog"

	"fairlead/internal/api"

	dto "github.com/prometheus/client_model/go"
)

// Cluster returns the state of the cluster as this host sees it. Returns a Fault with code NotFound if the
// host belongs to none.
type Cluster interface {
	Status(ctx context.Context, ask bool) (api.ClusterStatus, error)
}

var ofAddress = []string{"address"}

// The metrics of the cluster, as this host sees it.
var (
	clusterNodes = Metric{"fairlead_cluster_nodes", "gauge", []string{"state"}, "Nodes of the cluster by state: " +
		"alive, or missing if a node has not reached etcd for about ten seconds."}
	clusterDrained  = Metric{"fairlead_cluster_drained_nodes", "gauge", nil, "Nodes of the cluster that are drained."}
	clusterProblems = Metric{"fairlead_cluster_problems", "gauge", nil, "Problems of the cluster's objects on this " +
		"host."}
	clusterRevision = Metric{"fairlead_cluster_revision", "gauge", nil, "Revision of etcd up to which this host has " +
		"applied the changes of the cluster."}
	clusterLastChange = Metric{"fairlead_cluster_last_change_revision", "gauge", nil, "Revision of etcd of the last " +
		"change of the cluster that this host has applied."}
	clusterFrozen = Metric{"fairlead_cluster_frozen", "gauge", nil, "1 if this host ignores etcd because its records " +
		"seem to be older ones or those of another cluster, or if it may not act as its node, 0 if not."}
	clusterConnected = Metric{"fairlead_cluster_etcd_connected", "gauge", nil, "1 if etcd answers this host, 0 if not."}
	clusterWritable  = Metric{"fairlead_cluster_etcd_accepts_changes", "gauge", nil, "1 if etcd accepts changes of " +
		"this host, 0 if not: without permission, quota or quorum, for example."}
	clusterServerUp = Metric{"fairlead_cluster_etcd_server_up", "gauge", []string{"endpoint"}, "1 if the server of " +
		"etcd answers this host, 0 if not."}
	clusterExpires = Metric{"fairlead_cluster_certificate_expiry_timestamp_seconds", "gauge", nil, "When the " +
		"certificate of this node ends unless it is renewed, in seconds since 1970."}

	addressHeld = Metric{"fairlead_cluster_address_held", "gauge", ofAddress, "1 if this host answers for the virtual " +
		"address, 0 if not."}
	addressLease = Metric{"fairlead_cluster_address_lease_seconds", "gauge", ofAddress, "Longest time for which the " +
		"holder of the virtual address answers without another renewal."}
	addressEpoch = Metric{"fairlead_cluster_address_epoch", "gauge", ofAddress, "Times that a node has claimed the " +
		"virtual address."}
)

// clusterCollector reads the state of the cluster at each scrape.
type clusterCollector struct {
	from Cluster
	log  *slog.Logger
}

// Gather implements prometheus.Gatherer.
func (c clusterCollector) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	f := newFamilies()
	switch s, err := c.from.Status(ctx, false); {
	case err == nil:
		f.cluster(s)
	case api.CodeOf(err) != api.NotFound:
		c.log.Warn("read the state of the cluster", "error", err)
	}
	return f.all(), nil
}

func (f *families) cluster(s api.ClusterStatus) {
	var alive, drained, problems int64
	for _, n := range s.Nodes {
		if n.Drained {
			drained++
		}
		if n.Alive {
			alive++
		}
		if n.Name == s.Node {
			problems = int64(len(n.Problems))
		}
	}
	f.add(clusterNodes, float64(alive), f.labels(clusterNodes.Labels, "alive"))
	f.add(clusterNodes, float64(int64(len(s.Nodes))-alive), f.labels(clusterNodes.Labels, "missing"))
	f.add(clusterDrained, float64(drained), nil)
	f.add(clusterProblems, float64(problems), nil)
	f.add(clusterRevision, float64(s.Applied), nil)
	f.add(clusterLastChange, float64(s.LastChange), nil)
	f.add(clusterFrozen, truth(s.Frozen != "" || s.Etcd.Frozen != ""), nil)
	f.add(clusterConnected, truth(s.Etcd.Connected), nil)
	f.add(clusterWritable, truth(s.Etcd.Connected && s.Etcd.Frozen == "" && s.Etcd.Refused == ""), nil)
	for _, server := range s.Etcd.Servers {
		f.add(clusterServerUp, truth(server.Problem == ""), f.labels(clusterServerUp.Labels, server.Endpoint))
	}
	f.add(clusterExpires, float64(s.CertificateExpires.Unix()), nil)
	for _, v := range s.Addresses {
		if v.Announce != "" {
			continue // it has no holder
		}
		of := f.labels(ofAddress, v.Address.Addr().String())
		f.add(addressHeld, truth(v.Answers), of)
		f.add(addressLease, v.Lease.Seconds(), of)
		f.add(addressEpoch, float64(v.Epoch), of)
	}
}
