package hosted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/frontend/traefik/provider"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/gateway/status"
	"fairlead/internal/lock"
	"fairlead/internal/model"
	values "fairlead/internal/model/gateway"
	"fairlead/internal/process/standalone"
)

// Options say where the gateway runs.
type Options struct {
	// Directory is where the next daemon finds the serving process.
	Directory string
	// Errors is the file to which the serving process writes when it cannot run. It does not
	// have the daemon's standard error, which it outlives.
	Errors string
	// State is the directory of storages of certificates whose paths are relative.
	State string
	// Netns is the network namespace of the entry points.
	Netns *os.File
	// Cluster is the storage that the gateways of a cluster share; nil if there is none.
	Cluster Cluster
	Log     *slog.Logger
}

// Runner runs the gateway as a child of the daemon. It implements gateway.Runner of the daemon and
// admin.GatewayCalls. Its methods may be called concurrently.
//
// Theory of operation. The daemon calls Run at each change of what files declare, and of the
// servers, with the objects of the cluster. Containers with labels are followed here. All sources
// together, and the certificates of resolvers, are the configuration of the serving process, which gets what has
// changed. The serving process outlives the daemon; the next daemon adopts it with its first Run.
type Runner struct {
	opt Options
	log *slog.Logger
	// life ends with Part, which interrupts what waits for the serving process.
	life context.Context
	end  context.CancelFunc

	mu sync.Mutex
	// controller is nil while no gateway runs.
	controller *serving.Controller
	static     values.Static
	// declared is the configuration of the files, and one of the sources.
	declared values.Config
	// cluster are the objects of the cluster that Run got last, and one of the sources.
	cluster *model.ClusterGateway
	sources map[string]standalone.Source
	docker  *following
	// obtained are the certificates of resolvers, nil while no gateway runs.
	obtained *obtained
	// errors is open while a gateway runs: a process that has ended is started again.
	errors *os.File
	// files are the states of the files that the configuration names, when it was applied.
	// watcher watches them; it is nil while nothing follows them.
	files   map[string]fileState
	watcher *provider.Watcher
	// ending is closed when the gateway that ended last has completed its requests; nil if none
	// has.
	ending chan struct{}
	// reported are the problems that are logged already.
	reported map[string]bool
}

// The sources of the configuration; package standalone has their precedence.
const (
	fromCluster    = "cluster"
	fromContainers = "docker"
	fromFiles      = "file"
)

// NewRunner returns a runner. It starts nothing.
func NewRunner(opt Options) *Runner {
	r := &Runner{opt: opt, log: opt.Log, sources: map[string]standalone.Source{}, reported: map[string]bool{}}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// Check implements gateway.Runner.
func (r *Runner) Check(g model.Gateway) (api.Mistakes, []string) {
	lock.Outside("the files of the gateway")
	c, err := NewChecked(g)
	if err != nil {
		return api.Mistakes{{At: "gateway", Text: err.Error()}}, nil
	}
	return c.Mistakes(), c.Notes()
}

// Run implements gateway.Runner.
func (r *Runner) Run(ctx context.Context, g *model.Gateway) error {
	lock.Outside("the gateway")
	r.mu.Lock()
	defer r.mu.Unlock()
	if g == nil {
		return r.stop()
	}
	static, config := traefik.Qualified(g.Static, g.Config)
	static.Resolvers = r.withStorages(static.Resolvers)
	standalone.Reuse(&config, &r.declared)
	r.declared = config
	r.sources[fromFiles] = standalone.Source{Config: config}
	r.setCluster(g.Cluster)
	if err := r.followDocker(cmp.Or(static.Docker, static.Swarm)); err != nil {
		return err
	}
	return r.apply(ctx, static)
}

// apply makes the serving process have the sources and the static settings.
func (r *Runner) apply(ctx context.Context, static values.Static) (err error) {
	config, known := standalone.Together(r.sources)
	r.setFiles(filesOf(config))
	r.obtain(static)
	r.obtained.manager.Complete(&config)
	var statuses []status.Status
	switch {
	case r.controller == nil:
		var with serving.Options
		if with, err = r.options(); err != nil {
			return err
		}
		r.controller, statuses, err = r.start(ctx, with, static, &config, known)
	case !reflect.DeepEqual(served(static), served(r.static)):
		if _, err = r.controller.Replace(ctx, static); err == nil {
			r.static = static
			statuses, err = r.controller.Apply(&config, known)
		}
	default:
		statuses, err = r.controller.Apply(&config, known)
	}
	if err != nil {
		return err
	}
	r.static = static
	r.report(statuses)
	r.obtained.start()
	return nil
}

// served returns the static settings that the serving process has.
func served(static values.Static) values.Static {
	static.Providers, static.Resolvers = values.Providers{}, nil
	return static
}

// options returns the options of a serving process, for which it makes the files.
func (r *Runner) options() (serving.Options, error) {
	err := os.MkdirAll(r.opt.Directory, 0o700)
	if err == nil && r.errors == nil {
		r.errors, err = os.OpenFile(r.opt.Errors, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return serving.Options{}, fmt.Errorf("make the gateway's files: %w", err)
	}
	return serving.Options{Directory: r.opt.Directory, Netns: r.opt.Netns, Stderr: r.errors,
		Life: r.life, Log: r.log}, nil
}

// Part leaves the serving process to the next daemon.
func (r *Runner) Part() {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopDocker()
	r.stopObtaining()
	if r.controller != nil {
		r.controller.Part()
		r.controller = nil
	}
}

// following is a provider of containers that is followed.
type following struct {
	of     values.Docker
	cancel context.CancelFunc
}

// dockerWait is how long Run waits for the containers of an engine: a serving process that
// an earlier daemon has left must not lose their routers for a moment.
const dockerWait = 3 * time.Second

// followDocker follows the containers of an engine, or stops that if of is nil.
func (r *Runner) followDocker(of *values.Docker) error {
	if of != nil && r.docker != nil && reflect.DeepEqual(*of, r.docker.of) {
		return nil
	}
	r.stopDocker()
	if of == nil {
		return nil
	}
	with := *of
	if host := os.Getenv("DOCKER_HOST"); strings.HasPrefix(host, "unix://") {
		with.Endpoint = cmp.Or(with.Endpoint, host)
	}
	docker, err := provider.NewDocker(with, r.log)
	if err != nil {
		return fmt.Errorf("follow containers: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.docker = &following{*of, cancel}
	first := make(chan standalone.Source, 1)
	go docker.Follow(ctx, func(config values.Config, problems []traefik.Problem) {
		source := standalone.Source{Config: config, Problems: problems}
		select {
		case first <- source:
		default:
		}
		r.containersChanged(ctx, source)
	})
	select {
	case r.sources[fromContainers] = <-first:
	case <-time.After(dockerWait):
		r.log.Warn("the container engine does not answer: the gateway begins without its containers")
	}
	return nil
}

// containersChanged applies the configuration of the containers, unless ctx has ended. A gateway that could not be
// started gets it with the next attempt.
func (r *Runner) containersChanged(ctx context.Context, source standalone.Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	r.sources[fromContainers] = source
	if r.controller == nil {
		return
	}
	if err := r.apply(ctx, r.static); err != nil {
		r.log.Error("apply the routers of containers", "error", err)
	}
}

func (r *Runner) stopDocker() {
	if r.docker != nil {
		r.docker.cancel()
		r.docker = nil
	}
	delete(r.sources, fromContainers)
}

// report logs each object that cannot be used, once for each reason.
func (r *Runner) report(all []status.Status) {
	r.reported = standalone.Report(r.log, "gateway: ", all, r.reported)
}

// errNone is the answer while no gateway runs.
var errNone = errors.New("the daemon runs no gateway: declare one with `gateway:` in fairlead.yaml")

// running returns the controller, or a Fault with code NotFound.
func (r *Runner) running() (*serving.Controller, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.controller == nil {
		return nil, &api.Fault{Code: api.NotFound, Err: errNone}
	}
	return r.controller, nil
}
