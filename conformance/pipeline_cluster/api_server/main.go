// Kubernetes' own API server, and the etcd that keeps its objects, in one process.
//
// api-server DIRECTORY OPTION...: the options are those of kube-apiserver.
package main

import (
	"log"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	etcd := startEtcd(os.Args[1])
	command := app.NewAPIServerCommand()
	command.SetArgs(append(os.Args[2:], "--etcd-servers=http://"+etcd.Clients[0].Addr().String()))
	status := cli.Run(command)
	etcd.Close()
	os.Exit(status)
}

func startEtcd(directory string) *embed.Etcd {
	config := embed.NewConfig()
	config.Dir = directory
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true // it need not survive the machine
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls, config.ListenPeerUrls = anyPort, anyPort, anyPort
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	<-etcd.Server.ReadyNotify()
	return etcd
}
