npm install standardwebhooks@1 svix@1 stripe@22
