package balance

import (
	"context"
	"errors"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"

	"github.com/spf13/cobra"
)

// clusterFlags are the flags of services of a cluster.
type clusterFlags struct {
	cluster bool
	ingress []string
}

func (f *clusterFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.cluster, "cluster", false, "declare the service for all nodes of the cluster (default: only for "+
		"this host)")
	c.Flags().StringSliceVar(&f.ingress, "ingress", nil, "`NODES` of the cluster that accept the service's traffic, "+
		"with commas (default: all; an empty list means all)")
}

// check checks the flags of the cluster's services.
func (f *clusterFlags) check(c *cobra.Command, dry bool) error {
	switch {
	case !f.cluster && c.Flags().Changed("ingress"):
		return errors.New("--ingress: only services of a cluster have it: add --cluster, or omit it")
	case f.cluster && dry:
		return errors.New("--dry-run: other hosts change too: omit it with --cluster")
	}
	return nil
}

// add creates the service on this host, or in the cluster.
func (f *clusterFlags) add(ctx context.Context, client *admin.Client, v model.VirtualService,
	dry bool) (api.Result, error) {
	if f.cluster {
		return admin.SetClusterService.Do(ctx, client,
			api.ClusterServiceRequest{ClusterService: api.ClusterService{VirtualService: v, Ingress: f.ingress}})
	}
	return admin.SetService.Do(ctx, client, api.ServiceRequest{VirtualService: v, Create: true, DryRun: dry})
}

// changeClusterService changes a service of the cluster.
func changeClusterService(r *command.Remote, c *cobra.Command, client *admin.Client, f *serviceFlags,
	args []string) error {
	return updateClusterService(r, c.Context(), client, args[0], func(v *api.ClusterService) error {
		if c.Flags().Changed("ingress") {
			v.Ingress = f.ingress
		}
		if err := f.change(c, &v.VirtualService, args[1:]); err != nil {
			return command.Usage(err)
		}
		return nil
	})
}

// removeFromCluster removes a service from the cluster, or real servers from the service.
func removeFromCluster(r *command.Remote, ctx context.Context, client *admin.Client, args []string) error {
	if len(args) == 1 {
		result, err := admin.RemoveClusterService.Do(ctx, client, admin.ServiceName{Name: args[0]})
		if err != nil {
			return err
		}
		return printChanged(r, result)
	}
	return updateClusterService(r, ctx, client, args[0], func(v *api.ClusterService) error {
		for _, word := range args[1:] {
			named := func(s model.RealServer) bool { return s.String() == word }
			if !slices.ContainsFunc(v.Reals, named) {
				return api.Faultf(api.NotFound, "service %s of the cluster has no real server %s: want one of %s", v.Name,
					word, v.Reals)
			}
			v.Reals = slices.DeleteFunc(v.Reals, named)
		}
		return nil
	})
}

// updateClusterService reads a service of the cluster and sets it with a change. It repeats this up to
// three times if another request changed the service meanwhile.
func updateClusterService(r *command.Remote, ctx context.Context, client *admin.Client, name string,
	change func(*api.ClusterService) error) error {
	for again := 3; ; again-- {
		have, err := client.ClusterService(ctx, name)
		if err != nil {
			return err
		}
		next := api.ClusterService{VirtualService: have.VirtualService.Clone(), Ingress: have.Ingress}
		if err := change(&next); err != nil {
			return err
		}
		result, err := admin.SetClusterService.Do(ctx, client,
			api.ClusterServiceRequest{ClusterService: next, Was: &have})
		if api.CodeOf(err) == api.Conflict && again > 0 {
			continue
		}
		if err != nil {
			return err
		}
		return printChanged(r, result)
	}
}
