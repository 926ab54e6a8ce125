package api

import (
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/model"
)

// EtcdAccess is how nodes reach a cluster's etcd.
type EtcdAccess struct {
	// Endpoints are the URLs of its servers, e.g. https://192.0.2.7:2379.
	Endpoints []string `json:"endpoints"`
	// CA, Certificate and Key are PEM. If CA is empty, https:// uses the host's certificates.
	CA          string `json:"ca,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
	User        string `json:"user,omitempty"`
	Password    string `json:"password,omitempty"`
}

// ClusterInit creates a cluster. Its first node is this host.
type ClusterInit struct {
	// Name is that of the cluster in etcd; empty means "default".
	Name string     `json:"name,omitempty"`
	Etcd EtcdAccess `json:"etcd"`
	ClusterNode
}

// ClusterNode says what a host is in a cluster.
type ClusterNode struct {
	// Node is the name of the node; empty means that of the host.
	Node string `json:"node,omitempty"`
	// Addresses are those by which other nodes reach this one, at most one per family. If
	// there is none, the address towards etcd, or towards the node of the token, is used.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Port is the TCP port of the API for other nodes; 0 means 7947.
	Port uint16 `json:"port,omitempty"`
}

// ClusterJoin makes this host a node of a cluster.
type ClusterJoin struct {
	Token string `json:"token"`
	ClusterNode
}

// ClusterTokenRequest creates a join token.
type ClusterTokenRequest struct {
	// Life is how long the token is valid; 0 means an hour.
	Life time.Duration `json:"life,omitempty"`
	// Uses is how many hosts can join with it; 0 means one.
	Uses int `json:"uses,omitempty"`
}

// ClusterToken is a join token. Text is only known when the token is created.
type ClusterToken struct {
	ID      string    `json:"id"`
	Text    string    `json:"text,omitempty"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses"`
}

// ClusterNodeRequest names a node of the cluster by its name or id.
type ClusterNodeRequest struct {
	Node string `json:"node,omitempty"`
	// Undo ends a drain.
	Undo bool `json:"undo,omitempty"`
	// Force removes a node that is alive, or leaves although attachments are removed or etcd
	// does not answer.
	Force bool `json:"force,omitempty"`
}

// ClusterHost makes this host, with its addresses, the one that acts as its node.
type ClusterHost struct {
	// Addresses replace those of the node. If it is empty, they stay.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Takeover replaces another host that has acted as the node. Force: the administrator guarantees that it is down.
	Takeover bool `json:"takeover,omitempty"`
	Force    bool `json:"force,omitempty"`
}

// ClusterStatus is the state of a cluster as one node sees it.
type ClusterStatus struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	// Node is the name of this node.
	Node string `json:"node"`
	// Problem is what keeps this host from being a working node.
	Problem string `json:"problem,omitempty"`
	// Frozen is why this host may not act as its node, and empty if it may.
	Frozen string `json:"frozen,omitempty"`
	// CertificateExpires is when the certificate of this node ends, unless it is renewed.
	CertificateExpires time.Time `json:"certificateExpires"`
	// Applied is the revision of etcd up to which this host has applied the changes of the cluster, and
	// LastChange that of the last change among them. A host whose Applied is lower than the LastChange of
	// another one is behind.
	Applied    int64               `json:"applied"`
	LastChange int64               `json:"lastChange"`
	Nodes      []ClusterNodeStatus `json:"nodes"`
	Addresses  []ClusterAddress    `json:"addresses,omitempty"`
	Etcd       EtcdHealth          `json:"etcd"`
}

// ClusterNodeStatus is the state of a node.
type ClusterNodeStatus struct {
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses"`
	Port      uint16       `json:"port"`
	Version   string       `json:"version"`
	Joined    time.Time    `json:"joined"`
	Drained   bool         `json:"drained,omitempty"`
	// Alive is false if the node has not reached etcd for about ten seconds. Since is when its
	// daemon started.
	Alive bool      `json:"alive"`
	Since time.Time `json:"since,omitzero"`
	// Answered is true if the node was asked how far it is, and has answered. Behind is then how many
	// revisions of etcd it is behind the last change that a node has applied. Frozen is why it ignores etcd, or
	// does not act as the node.
	Answered bool   `json:"answered,omitempty"`
	Behind   int64  `json:"behind,omitempty"`
	Frozen   string `json:"frozen,omitempty"`
	// Problems are those of the cluster's objects on this node.
	Problems []string `json:"problems,omitempty"`
}

// ClusterObject is something that a node has, as the node's record says. The record has no time: it is as new as the
// snapshot of the node that shows it (EtcdHealth).
type ClusterObject struct {
	// Node is the name of the node.
	Node string            `json:"node"`
	Kind ClusterObjectKind `json:"kind"`
	// Of is the virtual service of a real server, or the network of an endpoint.
	Of string `json:"of,omitempty"`
	// Name is that of its attachment on the node.
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Port is that of a real server. Port 0 is the port that the client has connected to.
	Port     uint16 `json:"port,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	// Down is why a server of the gateway gets no requests. It is empty if it gets some, and for other kinds, whose
	// records do not contain it.
	Down string `json:"down,omitempty"`
	// Unreadable is why its record cannot be read; empty if it can.
	Unreadable string `json:"unreadable,omitempty"`
}

// ClusterObjectKind is what a ClusterObject is.
type ClusterObjectKind string

// The kinds of objects.
const (
	ClusterReal     ClusterObjectKind = "real server"
	ClusterEndpoint ClusterObjectKind = "endpoint"
	ClusterSandbox  ClusterObjectKind = "server of the gateway"
)

// EtcdHealth is the state of a cluster's store.
type EtcdHealth struct {
	// Connected is false if the snapshot may be old. Since is when that began, and Problem why.
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"`
	Problem   string    `json:"problem,omitempty"`
	// Refused is why etcd answers, but does not execute the requests of this node; empty if it does. It is not known
	// while Frozen is not empty.
	Refused string `json:"refused,omitempty"`
	// Revision is that of the newest snapshot.
	Revision int64 `json:"revision"`
	// Frozen is why this node accepts no new snapshots, and empty if it does.
	Frozen  string       `json:"frozen,omitempty"`
	Servers []EtcdServer `json:"servers,omitempty"`
}

// EtcdServer is a server of etcd.
type EtcdServer struct {
	Endpoint string `json:"endpoint"`
	// Problem is why it does not answer.
	Problem string `json:"problem,omitempty"`
	Version string `json:"version,omitempty"`
	Leader  bool   `json:"leader,omitempty"`
	// Size is that of its database in bytes.
	Size int64 `json:"size,omitempty"`
	// Warnings are about the version's known faults, and alarms.
	Warnings []string `json:"warnings,omitempty"`
}

// ClusterService is a virtual service of the cluster, as it was declared.
type ClusterService struct {
	model.VirtualService
	// Ingress are the names of the nodes that accept the service's traffic. If it is empty, all do.
	Ingress []string `json:"ingress,omitempty"`
}

// Equal reports whether both are equal.
func (s ClusterService) Equal(o ClusterService) bool {
	return s.VirtualService.Equal(o.VirtualService) && slices.Equal(s.Ingress, o.Ingress)
}

// ClusterServiceRequest creates or changes a virtual service of the cluster.
type ClusterServiceRequest struct {
	ClusterService
	// Was is the service as the caller knows it. If it is nil, the cluster must not have the service,
	// or must have it with the same settings.
	Was *ClusterService `json:"was,omitempty"`
}
