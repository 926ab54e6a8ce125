package api

import "fairlead/internal/model"

// HostNetwork is the network of containers in the host's network namespace. It exists
// as long as there is such a workload.
const HostNetwork = "docker-host"

// Workload is a container in the host's network namespace whose ports are published
// with the mode socket.
type Workload struct {
	// Name is the name of its attachment, Ref its reference.
	Name, Ref string
	// Cgroup is its cgroup v2 directory.
	Cgroup      string
	Unpublished model.Unpublished
	// Publishes are its ports. Admit sets Endpoint, Via and Origin.
	Publishes []model.Publish
	// Wrong is why nothing can be published; nil if it can.
	Wrong error
}
