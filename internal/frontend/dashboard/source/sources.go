package source

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/gateway/view"
	"fairlead/internal/lab/history"
	"fairlead/internal/lab/report"
	"fairlead/internal/plan"
	"fairlead/internal/wording"
)

// Cluster is what the pages show of the cluster.
type Cluster struct {
	// Member is false if the host belongs to no cluster.
	Member   bool
	Status   api.ClusterStatus
	Sessions []api.ClusterBGPSession
}

// Objects are what the nodes of the cluster have, by their records.
type Objects struct {
	// Known is false if the daemon has no records, or is an older one.
	Known bool
	All   []api.ClusterObject
}

// Gateway is what the pages show of the gateway.
type Gateway struct {
	// Runs is false if the daemon runs no gateway.
	Runs bool
	view.RawData
}

// Host is what the pages show of this host's own state.
type Host struct {
	Ports []ports.Port
	// Failed are ports that are not published, and Unseen is what could not be read, each with the reason.
	Failed, Unseen []string
	Findings       []doctor.Finding
}

// Lab is what the pages show of the laboratory.
type Lab struct {
	Groups  []history.Group
	Courses []report.Course
	// Last is the newest session; nil if there is none.
	Last *history.Entry
	// Damaged are the lines of the history that could not be read.
	Damaged []string
}

// Examiner examines this host.
type Examiner interface {
	Host(ctx context.Context) (doctor.Host, error)
	Kernel(ctx context.Context) (plan.Facts, error)
}

// Set are the sources of all pages. A nil source does not exist here.
type Set struct {
	Services    *Source[[]api.ServiceView]
	Attachments *Source[[]api.View]
	Networks    *Source[admin.Networks]
	Events      *Source[[]api.Event]
	Stats       *Source[api.Stats]
	Cluster     *Source[Cluster]
	Objects     *Source[Objects]
	Gateway     *Source[Gateway]
	Host        *Source[Host]
	Kernel      *Source[plan.Facts]
	Lab         *Source[Lab]
	// FirstServices are what the first pages of the tables of services and real servers show.
	FirstServices *Source[api.FirstServices]
	// WrongServices, WrongAttachments, Fill and WrongGateway are the parts that the first page shows. They do not
	// contain objects that are well.
	WrongServices    *Source[[]api.ServiceView]
	WrongAttachments *Source[[]api.View]
	Fill             *Source[api.Stats]
	WrongGateway     *Source[Gateway]
	// changes is the daemon's counter of changes.
	changes *Source[uint64]
}

// Of returns the sources. daemon, gateway and host can be nil.
func Of(daemon *admin.Client, gateway func(ctx context.Context, path string, into any) error,
	host Examiner) *Set {
	s := &Set{Lab: New(here(readLab), nil)}
	var changes func() uint64
	if daemon != nil {
		s.changes = New(daemon.Changes, nil)
		changes = s.count
		s.Services = New(daemon.Services, changes)
		s.Attachments = New(daemon.Attachments, changes)
		s.Networks = New(func(ctx context.Context) (admin.Networks, error) {
			return admin.ListNetworks.Do(ctx, daemon)
		}, changes)
		s.Events = New(daemon.Events, changes)
		s.Stats = New(daemon.Stats, changes)
		s.FirstServices = New(func(ctx context.Context) (api.FirstServices, error) {
			return daemon.FirstServices(ctx, table.PageSize)
		}, changes)
		s.WrongServices = New(daemon.WrongServices, changes)
		s.WrongAttachments = New(daemon.WrongAttachments, changes)
		s.Fill = New(daemon.Fill, changes)
		s.Objects = New(func(ctx context.Context) (Objects, error) { return readObjects(ctx, daemon) }, changes)
		s.Cluster = New(func(ctx context.Context) (Cluster, error) { return readCluster(ctx, daemon) }, changes)
	}
	if gateway != nil {
		s.Gateway = New(func(ctx context.Context) (Gateway, error) { return readGateway(ctx, gateway, "") }, changes)
		s.WrongGateway = New(func(ctx context.Context) (Gateway, error) {
			g, err := readGateway(ctx, gateway, "?"+view.ParamWrong)
			g.RawData = g.Wrong() // a gateway that serves its own pages, or an older daemon, returns all
			return g, err
		}, changes)
	}
	if host != nil {
		s.Host = New(here(func(ctx context.Context) (Host, error) { return readHost(ctx, host) }), changes)
		s.Kernel = New(here(once(host.Kernel)), nil)
	}
	return s
}

// count returns the daemon's counter of changes, as it was when it was read last: a second ago, or longer if that takes
// more than 3 ms.
func (s *Set) count() uint64 {
	s.changes.Refresh()
	n, _ := s.changes.Get(ended)
	return n
}

// ended is a context that has ended: what gets it does not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Refresh starts the readings of all values of the first page that are due, so that they run at the same time.
func (s *Set) Refresh() {
	if s.Services != nil {
		s.WrongServices.Refresh()
		s.WrongAttachments.Refresh()
		s.Networks.Refresh()
		s.Events.Refresh()
		s.Fill.Refresh()
		s.Cluster.Refresh()
	}
	if s.Gateway != nil {
		s.WrongGateway.Refresh()
	}
	if s.Host != nil {
		s.Host.Refresh()
	}
}

// nodesLimit is how long to wait for the answers of other nodes.
const nodesLimit = 3 * time.Second

func readCluster(ctx context.Context, daemon *admin.Client) (c Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodesLimit)
	defer cancel()
	c.Status, err = admin.ShowNodes.Do(ctx, daemon)
	if api.CodeOf(err) == api.NotFound {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	c.Member = true
	sessions, err := admin.ListBGPSessions.Do(ctx, daemon)
	c.Sessions = sessions.Sessions
	return c, err
}

func readObjects(ctx context.Context, daemon *admin.Client) (Objects, error) {
	o, err := admin.ListObjects.Do(ctx, daemon)
	if api.CodeOf(err) == api.NotFound {
		return Objects{}, nil
	}
	return Objects{err == nil, o.Objects}, err
}

func readGateway(ctx context.Context, read func(ctx context.Context, path string, into any) error,
	query string) (g Gateway, err error) {
	err = read(ctx, "/api/rawdata"+query, &g.RawData)
	if api.CodeOf(err) == api.NotFound {
		return g, nil
	}
	g.Runs = err == nil
	return g, err
}

// readHost keeps only what pages show: the facts of a host are large.
func readHost(ctx context.Context, from Examiner) (Host, error) {
	h, err := from.Host(ctx)
	if err != nil {
		return Host{}, err
	}
	return Host{h.Ports, wording.Unpublished(h.Attachments), h.Unseen, doctor.Examine(h)}, nil
}

// here returns a function whose errors are texts: a file of this host that is missing must not be taken for a daemon
// that does not answer.
func here[T any](read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		value, err := read(ctx)
		if err != nil {
			err = errors.New(err.Error())
		}
		return value, err
	}
}

// once calls a function again only after a failure: what it returns does not change while this process runs.
func once[T any](read func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var value *T
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if value != nil {
			return *value, nil
		}
		v, err := read(ctx)
		if err == nil {
			value = &v
		}
		return v, err
	}
}

// readLab reads the history of the user that runs this process; an empty one if there is no file.
func readLab(context.Context) (l Lab, err error) {
	file, err := history.DefaultFile()
	if err != nil {
		return l, err
	}
	entries, err := history.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if len(entries) == 0 && err != nil {
		return l, err
	}
	if err != nil {
		l.Damaged = strings.Split(err.Error(), "\n")
	}
	l.Groups = history.Groups(entries)
	l.Courses = report.Courses(l.Groups, nil, nil)
	if len(entries) > 0 {
		l.Last = &entries[len(entries)-1]
	}
	return l, nil
}
