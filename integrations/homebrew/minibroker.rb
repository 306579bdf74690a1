# For a tap: docs/releasing.md says how OWNER and SHA256 are filled in, and the libraries added.
class Minibroker < Formula
  include Language::Python::Virtualenv

  desc "Kafka broker for tests and for learning, in one Python process"
  homepage "https://github.com/OWNER/minibroker"
  url "https://github.com/OWNER/minibroker/releases/download/v0.1.0/minibroker-0.1.0.tar.gz"
  sha256 "SHA256"
  license "Apache-2.0"

  depends_on "rust" => :build # cramjam and cryptography, where Homebrew builds them from their source
  depends_on "openssl@3"
  depends_on "python@3.13"

  # `brew update-python-resources` writes the libraries here.

  def install
    virtualenv_install_with_resources
  end

  service do
    run [opt_bin/"minibroker", "serve", "--set", "log.dirs=#{var}/minibroker"]
    keep_alive true
    working_dir var
  end

  test do
    ready = testpath/"ready"
    pid = spawn bin/"minibroker", "serve", "--set", "listeners=PLAINTEXT://127.0.0.1:0",
                "--set", "log.dirs=#{testpath}/data", "--ready-file", ready.to_s
    begin
      sleep 0.1 until ready.exist?
      address = ready.read.lines.first.chomp
      assert_match "1 record", pipe_output("#{bin}/minibroker produce orders --bootstrap-server #{address}", "tea\n")
      assert_equal "tea\n", shell_output("#{bin}/minibroker consume orders --bootstrap-server #{address}")
    ensure
      Process.kill "TERM", pid
      Process.wait pid
    end
  end
end
