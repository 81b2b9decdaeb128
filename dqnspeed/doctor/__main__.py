from dqnspeed.doctor import main

if __name__ == "__main__":
    main()
